"""JSON decoding, with msgspec's validation errors turned into flaws that name value, allowed values and nearest name.

A msgspec error names the path of the first invalid value, but neither the value nor the allowed ones. So only after an error
the input is decoded again without types, and both the data and the type are followed along that path.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from noonday.model.errors import Flaw, InvalidInput, MalformedBody, nearest, pointer_to

Step = str | int

MOST_CORRECTIONS = 20
LONGEST_NAME = 100
"""Maximum number of characters of an unknown name that are compared and repeated in a message."""


class BodyDecoder:
    """Decodes JSON into one type, strictly. Raises MalformedBody (not JSON) or InvalidInput (not of that type)."""

    def __init__(self, expected: Any) -> None:
        self._expected = expected
        self._decoder = msgspec.json.Decoder(expected)

    def decode(self, body: bytes | msgspec.Raw) -> Any:
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            return self._decode_leniently(read_json(body), error)
        except _UNREADABLE as error:
            raise _malformed(error, bytes(body)) from error

    def _decode_leniently(self, data: Any, error: msgspec.ValidationError) -> Any:
        """Convert whole floats such as 3.0, which msgspec rejects where an integer is expected, and decode again."""
        for _ in range(MOST_CORRECTIONS):
            if not _convert_whole_float(data, error, self._expected):
                break
            try:
                return msgspec.convert(data, self._expected)
            except msgspec.ValidationError as another:
                error = another
        raise invalid(error, data, self._expected) from error


def read_json(body: bytes | msgspec.Raw) -> Any:
    """Decode JSON without types. Raises MalformedBody with the position of the error."""
    try:
        return msgspec.json.decode(body)
    except _UNREADABLE as error:
        raise _malformed(error, bytes(body)) from error


def invalid(error: msgspec.ValidationError, data: Any, expected: Any) -> InvalidInput:
    """Return an InvalidInput for a msgspec error about `data`."""
    flaw = flaw_of(error, data, expected)
    return InvalidInput(f"{flaw.pointer}: {flaw.detail}" if flaw.pointer else flaw.detail, [flaw])


def flaw_of(error: msgspec.ValidationError, data: Any, expected: Any) -> Flaw:
    message, steps = _locate(error, data, expected)
    for pattern, explain in _EXPLAINED:
        if found := pattern.fullmatch(message):
            return explain(_Location(steps, _find(data, steps), _walk(expected, steps)), found[1])
    return Flaw(pointer_to(*steps), message[:1].lower() + message[1:], _find(data, steps))


class _Location(NamedTuple):
    steps: tuple[Step, ...]
    value: Any
    type: inspect.Type | None


def _unknown_field(at: _Location, name: str) -> Flaw:
    known = [field.encode_name for field in at.type.fields] if isinstance(at.type, inspect.StructType) else []
    value = at.value.get(name) if isinstance(at.value, dict) else None
    name = name[:LONGEST_NAME]
    return Flaw(pointer_to(*at.steps, name), f"unknown field {name!r}", value, known, nearest(name, known))


def _missing_field(at: _Location, name: str) -> Flaw:
    return Flaw(pointer_to(*at.steps, name), f"{name} is required")


def _bad_choice(at: _Location, _: str) -> Flaw:
    choices = _choices(at.type)
    likely = nearest(at.value[:LONGEST_NAME], map(str, choices)) if isinstance(at.value, str) else None
    detail = f"must be one of {', '.join(map(str, choices))}"
    return Flaw(pointer_to(*at.steps), detail, at.value, choices, likely)


def _bad_day(at: _Location, _: str) -> Flaw:
    return Flaw(pointer_to(*at.steps), "must be a date (YYYY-MM-DD)", at.value, "a date such as 2030-01-31")


_EXPLAINED = (
    (re.compile(r"Object contains unknown field `(.*)`", re.DOTALL), _unknown_field),
    (re.compile(r"Object missing required field `(.*)`"), _missing_field),
    (re.compile(r"Invalid enum value (.*)", re.DOTALL), _bad_choice),
    (re.compile(r"Invalid (RFC3339 encoded date)"), _bad_day),
)


def _choices(kind: inspect.Type | None) -> list[Any]:
    if isinstance(kind, inspect.EnumType):
        return [member.value for member in kind.cls]
    return list(kind.values) if isinstance(kind, inspect.LiteralType) else []


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _malformed(error: Exception, body: bytes) -> MalformedBody:
    if not body.strip():
        return MalformedBody("the body is empty; send JSON", position=0)
    if isinstance(error, RecursionError):
        return MalformedBody("the body is nested too deeply")
    position, message = _position(error, body)
    line, column = body.count(b"\n", 0, position) + 1, position - body.rfind(b"\n", 0, position)
    return MalformedBody(f"{message}, at byte {position} (line {line}, column {column})", position=position)


def _position(error: Exception, body: bytes) -> tuple[int, str]:
    try:
        body.decode()
    except UnicodeDecodeError as invalid_text:
        return invalid_text.start, "the body is not UTF-8"
    found = re.search(r"\(byte (\d+)\)", str(error))
    return int(found[1]) if found else len(body), str(error).partition(" (byte")[0]


SOME_KEY = "[...]"
_STEP = re.compile(r"(\[\.\.\.\])|\.([^.\[]+)|\[(\d+)\]")


def _locate(error: msgspec.ValidationError, data: Any, expected: Any) -> tuple[str, tuple[Step, ...]]:
    """Return the message and the path. msgspec omits keys of a dict: the first key with an invalid value is taken."""
    message, steps = _parse(str(error))
    if SOME_KEY in steps:
        depth = steps.index(SOME_KEY)
        key = _first_invalid_key(_find(data, steps[:depth]), _walk(expected, steps[: depth + 1]))
        steps = (*steps[:depth], key, *steps[depth + 1 :])
    return message, steps


def _first_invalid_key(values: dict[str, Any], kind: inspect.Type | None) -> str:
    for key, value in values.items():
        try:
            msgspec.convert(value, kind.cls if isinstance(kind, inspect.StructType) else Any)
        except msgspec.ValidationError:
            return key
    return SOME_KEY


def _parse(message: str) -> tuple[str, tuple[Step, ...]]:
    """Split `Expected int - at $.tags[2]` into the error and the path."""
    error, _, path = message.rpartition(" - at `$")
    if not error:
        return message, ()
    found = _STEP.findall(path.removesuffix("`"))
    return error, tuple(some or name or int(index) for some, name, index in found)


def _find(data: Any, steps: Sequence[Step]) -> Any:
    for step in steps:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return None
    return data


def _convert_whole_float(data: Any, error: msgspec.ValidationError, expected: Any) -> bool:
    """Convert the whole float that the error is about to int; in a list, convert all whole floats. Returns whether it did."""
    message, steps = _locate(error, data, expected)
    value = _find(data, steps)
    if not steps or not message.startswith("Expected `int") or not isinstance(value, float) or not value.is_integer():
        return False
    parent, last = _find(data, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        parent[:] = [int(item) if isinstance(item, float) and item.is_integer() else item for item in parent]
    else:
        parent[last] = int(value)
    return True


def _walk(expected: Any, steps: Sequence[Step]) -> inspect.Type | None:
    kind: inspect.Type | None = bare(type_info(expected))
    for step in steps:
        kind = bare(next(_child_types(kind, step), None))
    return kind


def _child_types(kind: inspect.Type | None, step: Step) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type


def bare(kind: inspect.Type | None) -> inspect.Type | None:
    """Return the type without constraints and without None."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        else:
            kind = next(option for option in kind.types if not isinstance(option, inspect.NoneType))
    return kind


type_info = lru_cache(maxsize=None)(inspect.type_info)
