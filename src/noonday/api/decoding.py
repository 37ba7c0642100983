"""From bytes to typed values, and from msgspec's complaints to flaws that help.

msgspec names the place of the first mistake, not the value found there nor what would fit. So on the way of an error, and
only there, the input is read once more without types, and the type is walked along the same path.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from noonday.api.errors import MalformedBody
from noonday.model.errors import Flaw, InvalidInput, nearest

Step = str | int

MOST_CORRECTIONS = 20
LONGEST_NAME = 100
"""How much of a name is compared and shown: what is longer was not meant to be one."""


class BodyDecoder:
    """Reads one type from JSON, strictly. Raises MalformedBody (not JSON) or InvalidInput (not that type)."""

    def __init__(self, expected: Any) -> None:
        self._expected = expected
        self._decoder = msgspec.json.Decoder(expected)

    def decode(self, body: bytes | msgspec.Raw) -> Any:
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as complaint:
            return self._read_again(read_json(body), complaint)
        except _UNREADABLE as trouble:
            raise _malformed(trouble, bytes(body)) from trouble

    def _read_again(self, data: Any, complaint: msgspec.ValidationError) -> Any:
        """To JSON, 3.0 is as whole a number as 3; to msgspec it is not. So where that is all, it is put right."""
        for _ in range(MOST_CORRECTIONS):
            if not _make_whole(data, complaint, self._expected):
                break
            try:
                return msgspec.convert(data, self._expected)
            except msgspec.ValidationError as another:
                complaint = another
        raise invalid(complaint, data, self._expected) from complaint


def read_json(body: bytes | msgspec.Raw) -> Any:
    """JSON without types. Raises MalformedBody, which says where it ceases to be JSON."""
    try:
        return msgspec.json.decode(body)
    except _UNREADABLE as trouble:
        raise _malformed(trouble, bytes(body)) from trouble


def invalid(complaint: msgspec.ValidationError, data: Any, expected: Any) -> InvalidInput:
    """What msgspec said about `data`, with the value in question and what would be valid in its place."""
    flaw = flaw_of(complaint, data, expected)
    return InvalidInput(f"{flaw.pointer}: {flaw.detail}" if flaw.pointer else flaw.detail, [flaw])


def flaw_of(complaint: msgspec.ValidationError, data: Any, expected: Any) -> Flaw:
    what, steps = _located(complaint, data, expected)
    for pattern, explain in _EXPLAINED:
        if found := pattern.fullmatch(what):
            return explain(_Place(steps, _find(data, steps), _walk(expected, steps)), found[1])
    return Flaw(_pointer(steps), what[:1].lower() + what[1:], _find(data, steps))


class _Place(NamedTuple):
    steps: tuple[Step, ...]
    value: Any
    type: inspect.Type | None


def _unknown_field(place: _Place, name: str) -> Flaw:
    known = [field.encode_name for field in place.type.fields] if isinstance(place.type, inspect.StructType) else []
    value = place.value.get(name) if isinstance(place.value, dict) else None
    name = name[:LONGEST_NAME]
    return Flaw(_pointer((*place.steps, name)), f"there is no field {name!r} here", value, known, nearest(name, known))


def _missing_field(place: _Place, name: str) -> Flaw:
    return Flaw(_pointer((*place.steps, name)), f"{name} is required")


def _bad_choice(place: _Place, _: str) -> Flaw:
    choices = _choices(place.type)
    likely = nearest(place.value[:LONGEST_NAME], map(str, choices)) if isinstance(place.value, str) else None
    detail = f"must be one of {', '.join(map(str, choices))}"
    return Flaw(_pointer(place.steps), detail, place.value, choices, likely)


def _bad_day(place: _Place, _: str) -> Flaw:
    return Flaw(_pointer(place.steps), "must be a day, written YYYY-MM-DD", place.value, "a day such as 2030-01-31")


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


def _malformed(trouble: Exception, body: bytes) -> MalformedBody:
    if not body.strip():
        return MalformedBody("the body is empty; JSON is expected", position=0)
    if isinstance(trouble, RecursionError):
        return MalformedBody("the body is nested too deeply")
    position, what = _where(trouble, body)
    line, column = body.count(b"\n", 0, position) + 1, position - body.rfind(b"\n", 0, position)
    return MalformedBody(f"{what}, at byte {position} (line {line}, column {column})", position=position)


def _where(trouble: Exception, body: bytes) -> tuple[int, str]:
    try:
        body.decode()
    except UnicodeDecodeError as ill_formed:
        return ill_formed.start, "the body is not UTF-8"
    found = re.search(r"\(byte (\d+)\)", str(trouble))
    return int(found[1]) if found else len(body), str(trouble).partition(" (byte")[0]


SOME_KEY = "[...]"
_STEP = re.compile(r"(\[\.\.\.\])|\.([^.\[]+)|\[(\d+)\]")


def _located(complaint: msgspec.ValidationError, data: Any, expected: Any) -> tuple[str, tuple[Step, ...]]:
    """What is wrong and where. Which key of an object it is, msgspec leaves out: the first whose value does not fit."""
    what, steps = _parse(str(complaint))
    if SOME_KEY in steps:
        at = steps.index(SOME_KEY)
        key = _first_unfit(_find(data, steps[:at]), _walk(expected, steps[: at + 1]))
        steps = (*steps[:at], key, *steps[at + 1 :])
    return what, steps


def _first_unfit(values: dict[str, Any], kind: inspect.Type | None) -> str:
    for key, value in values.items():
        try:
            msgspec.convert(value, kind.cls if isinstance(kind, inspect.StructType) else Any)
        except msgspec.ValidationError:
            return key
    return SOME_KEY


def _parse(message: str) -> tuple[str, tuple[Step, ...]]:
    """Split `Expected int - at $.tags[2]` into what is wrong and where."""
    what, _, path = message.rpartition(" - at `$")
    if not what:
        return message, ()
    found = _STEP.findall(path.removesuffix("`"))
    return what, tuple(some or name or int(index) for some, name, index in found)


def _pointer(steps: Sequence[Step]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _find(data: Any, steps: Sequence[Step]) -> Any:
    for step in steps:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return None
    return data


def _make_whole(data: Any, complaint: msgspec.ValidationError, expected: Any) -> bool:
    """Turn the float that was complained about into an int, with its neighbours if it stands in a list."""
    what, steps = _located(complaint, data, expected)
    value = _find(data, steps)
    if not steps or not what.startswith("Expected `int") or not isinstance(value, float) or not value.is_integer():
        return False
    parent, last = _find(data, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        parent[:] = [int(item) if isinstance(item, float) and item.is_integer() else item for item in parent]
    else:
        parent[last] = int(value)
    return True


def _walk(expected: Any, steps: Sequence[Step]) -> inspect.Type | None:
    kind: inspect.Type | None = _bare(_type_info(expected))
    for step in steps:
        kind = _bare(next(_inside(kind, step), None))
    return kind


def _inside(kind: inspect.Type | None, step: Step) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield kind.item_type
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type


def _bare(kind: inspect.Type | None) -> inspect.Type | None:
    """The type without constraints, and without the None it may be instead."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        else:
            kind = next(option for option in kind.types if not isinstance(option, inspect.NoneType))
    return kind


_type_info = lru_cache(maxsize=None)(inspect.type_info)
