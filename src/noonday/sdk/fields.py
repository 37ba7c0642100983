"""Structs that are passed either whole or by fields."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from noonday.model.errors import InvalidInput
from noonday.sdk.conversion import convert_fields, unknown_field

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


def filled(kind: type[S], given: S | None, fields: Mapping[str, Any]) -> S:
    """Return `given`, or a `kind` made of `fields` with Python or JSON values. Raises InvalidInput."""
    if given is not None:
        if fields:
            raise InvalidInput(f"pass either a whole {kind.__name__} or its fields, not both")
        return given
    known = kind.__struct_fields__
    flaws = [unknown_field(name, known) for name in fields if name not in known]
    if flaws:
        raise InvalidInput(flaws[0].detail if len(flaws) == 1 else f"{len(flaws)} fields are unknown", flaws)
    return convert_fields(fields, kind)


def either(given: T | None, fields: dict[str, Any], make: Callable[..., T]) -> T:
    """Return `given`, or else `make(**fields)`. Raises InvalidInput if both are given."""
    if given is None:
        return make(**fields)
    if fields:
        raise InvalidInput(f"pass either a whole {type(given).__name__} or its fields, not both")
    return given
