"""Query parameters, typed and strict: an unknown, repeated or ill-formed one is refused by name."""

import re
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec

from noonday.api.decoding import LONGEST_NAME, flaw_of
from noonday.model.errors import Flaw, InvalidInput, nearest

MOST_PARAMETERS = 100


class Query(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The query parameters of a route: one field each."""


class FiguresOf(Query, frozen=True):
    """Whose figures are asked for: the caller's tenant's, or with the scope operator those of all."""

    scope: Literal["tenant", "all"] = "tenant"


class Shown(Query, frozen=True):
    """How much is shown: a summary has no payload, progress, result and traceback, and costs less."""

    view: Literal["full", "summary"] = "full"


class QueryReader:
    """Makes a struct of a query string. Raises InvalidInput with every flaw."""

    def __init__(self, expected: type[msgspec.Struct]) -> None:
        self._expected = expected
        self._fields = {field.encode_name: field for field in msgspec.structs.fields(expected)}

    def read(self, query: bytes) -> Any:
        pairs = _pairs(query) if query else []
        flaws = [*self._misnamed(pairs), *self._missing(pairs)]
        values = {}
        for name, text in pairs:
            if name in self._fields:
                value = self._value(name, text)
                if isinstance(value, Flaw):
                    flaws.append(value)
                else:
                    values[self._fields[name].name] = value
        if flaws:
            raise InvalidInput("; ".join(flaw.detail for flaw in flaws), flaws)
        return self._expected(**values)

    def _misnamed(self, pairs: list[tuple[str, str]]) -> Iterator[Flaw]:
        seen = set[str]()
        for whole, text in pairs:
            name = whole[:LONGEST_NAME]
            if name in seen:
                yield Flaw(f"/{name}", f"query parameter {name} is given more than once", text)
            elif name not in self._fields:
                known = list(self._fields)
                detail = f"there is no query parameter {name!r}"
                yield Flaw(f"/{name}", detail, text, known, nearest(name, known))
            seen.add(name)

    def _missing(self, pairs: list[tuple[str, str]]) -> Iterator[Flaw]:
        given = {name for name, _ in pairs}
        for name, field in self._fields.items():
            if field.required and name not in given:
                yield Flaw(f"/{name}", f"query parameter {name} is required")

    def _value(self, name: str, text: str) -> Any:
        expected = self._fields[name].type
        try:
            return msgspec.convert(_plain(text, expected), expected)
        except msgspec.ValidationError as complaint:
            flaw = flaw_of(complaint, text, expected)
            return msgspec.structs.replace(flaw, pointer=f"/{name}", detail=f"query parameter {name}: {flaw.detail}")


def without_none(expected: Any) -> Any:
    """`X` of `X | None`: the type of a parameter that may be left out."""
    options = getattr(expected, "__args__", ())
    return next(option for option in options if option is not NoneType) if NoneType in options else expected


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise InvalidInput(f"the query string cannot be read: {error}") from error


def _plain(text: str, expected: Any) -> Any:
    """The text as a number or truth value where one is expected and it is one; else as it stands."""
    kind = without_none(expected)
    kind = getattr(kind, "__origin__", kind)
    if kind is int and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return _TRUTH.get(text, text) if kind is bool else text


_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_TRUTH = {"true": True, "false": False}
