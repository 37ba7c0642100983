"""Structs that are passed either whole or by fields."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from noonday.model.errors import Flaw, InvalidInput, nearest
from noonday.sdk.payload import to_builtins

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


def filled(kind: type[S], given: S | None, fields: Mapping[str, Any]) -> S:
    """Return `given`, or a `kind` made of `fields` with Python or JSON values. Raises InvalidInput."""
    if given is not None:
        if fields:
            raise InvalidInput(f"pass either a whole {kind.__name__} or its fields, not both")
        return given
    flaws = list(_unknown_fields(kind, fields))
    if flaws:
        raise InvalidInput(flaws[0].detail if len(flaws) == 1 else f"{len(flaws)} fields are unknown", flaws)
    try:
        return msgspec.convert(to_builtins(dict(fields), ""), kind)
    except msgspec.ValidationError as bad:
        raise InvalidInput(f"{kind.__name__}: {bad}", [Flaw("", str(bad))]) from bad


def either(given: T | None, fields: dict[str, Any], make: Callable[..., T]) -> T:
    """Return `given`, or else `make(**fields)`. Raises InvalidInput if both are given."""
    if given is None:
        return make(**fields)
    if fields:
        raise InvalidInput(f"pass either a whole {type(given).__name__} or its fields, not both")
    return given


def _unknown_fields(kind: type[msgspec.Struct], fields: Mapping[str, Any]) -> Iterator[Flaw]:
    known = kind.__struct_fields__
    for name in fields:
        if name not in known:
            guess = nearest(name, known)
            detail = f"unknown field {name}" + (f"; did you mean {guess}?" if guess else "")
            yield Flaw(f"/{name}", detail, allowed=list(known), nearest=guess)
