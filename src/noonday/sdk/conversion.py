"""Conversion of the values that Python code passes to the types of the API.

Python code writes `retry={"max_attempts": 3}`, `overlap="skip"` and `start_deadline_sec=timedelta(minutes=5)`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from noonday.model.decoding import bare, flaw_of, type_info
from noonday.model.errors import Flaw, InvalidInput, dotted, nearest, sentence_on
from noonday.sdk.payload import to_builtins

T = TypeVar("T")


def convert(name: str, value: Any, expected: Any) -> Any:
    """Return a value of the expected type. Raises InvalidInput with the place, the value, and what is allowed.

    Names of fields are in snake_case or as in JSON. Words of an enumeration are in any case. A time needs a time zone.
    """
    if isinstance(value, datetime):
        require_zone(name, value)
    return _convert(value, expected, f"/{name}")


def convert_fields(fields: Mapping[str, Any], expected: type[T]) -> T:
    """Return a struct of the given fields. Raises InvalidInput like `convert`."""
    made: T = _convert(dict(fields), expected, "")
    return made


def require_zone(name: str, at: datetime) -> None:
    """Raise InvalidInput if a time has no time zone."""
    if at.tzinfo is None:
        raise InvalidInput.of(f"/{name}", f"{name} needs a time zone: {_in_utc(at)}", at.isoformat())


def unknown_field(name: str, known: Iterable[str], at: str = "") -> Flaw:
    """Return the flaw of a name that no field has. `at` is the pointer to the object that has it."""
    names = sorted(known)
    guess = nearest(name, names)
    detail = f"unknown field {dotted(at)}.{name}" if at else f"unknown field {name}"
    detail += f"; did you mean {guess}?" if guess else f"; allowed are {', '.join(names)}"
    return Flaw(f"{at}/{name}", detail, allowed=names, nearest=guess)


def _convert(value: Any, expected: Any, at: str) -> Any:
    plain = _as_in_json(to_builtins(value, at), type_info(expected), at)
    try:
        return msgspec.convert(plain, expected)
    except msgspec.ValidationError as bad:
        flaw = flaw_of(bad, plain, expected)
        raise _refusal(msgspec.structs.replace(flaw, pointer=at + flaw.pointer)) from bad


def _as_in_json(value: Any, kind: inspect.Type | None, at: str) -> Any:
    """Return the value with the names of fields and the words of enumerations as they are in JSON."""
    kind = bare(kind)
    if isinstance(kind, inspect.EnumType) and isinstance(value, str):
        return next((each.value for each in kind.cls if str(each.value).lower() == value.lower()), value)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        return _fields_as_in_json(value, kind, at)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list | tuple):
        return [_as_in_json(each, kind.item_type, f"{at}/{index}") for index, each in enumerate(value)]
    return value


def _fields_as_in_json(value: Mapping[str, Any], kind: inspect.StructType, at: str) -> dict[str, Any]:
    fields = {name: field for field in kind.fields for name in (field.name, field.encode_name)}
    if kind.forbid_unknown_fields and (unknown := next((name for name in value if name not in fields), None)):
        raise _refusal(unknown_field(unknown, (field.name for field in kind.fields), at))
    return {
        fields[name].encode_name if name in fields else name: _as_in_json(
            each, fields[name].type if name in fields else None, f"{at}/{name}"
        )
        for name, each in value.items()
    }


def _refusal(flaw: Flaw) -> InvalidInput:
    detail = sentence_on(dotted(flaw.pointer), flaw.detail)
    if flaw.detail.startswith("must ") and isinstance(flaw.value, str | int | float):
        detail += f", not {flaw.value!r}"
    if flaw.nearest and "did you mean" not in detail:
        detail += f"; did you mean {flaw.nearest}?"
    return InvalidInput(detail, [flaw])


def _in_utc(at: datetime) -> str:
    """Return Python code for the time in UTC: `datetime(2030, 1, 1, tzinfo=UTC)`."""
    numbers = [at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond]
    while len(numbers) > 3 and numbers[-1] == 0:
        numbers.pop()
    return f"datetime({', '.join(map(str, numbers))}, tzinfo=UTC)"
