"""Query parameters: typed and strict. Unknown, repeated and malformed parameters are rejected by name."""

import re
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec

from noonday.model.decoding import LONGEST_NAME, flaw_of
from noonday.model.errors import Flaw, InvalidInput, nearest

MOST_PARAMETERS = 100


class Query(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Query parameters of a route, one field each."""


class ScopeQuery(Query, frozen=True):
    """Tenants to count: the caller's tenant, or all tenants (needs scope operator)."""

    scope: Literal["tenant", "all"] = "tenant"


class ViewQuery(Query, frozen=True):
    """Level of detail. A summary omits payload, progress, result and traceback, and costs less."""

    view: Literal["full", "summary"] = "full"


class QueryReader:
    """Decodes a query string into a struct. Raises InvalidInput with every flaw."""

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
                yield Flaw(f"/{name}", f"query parameter {name} is repeated; send it once", text)
            elif name not in self._fields:
                known = list(self._fields)
                detail = f"unknown query parameter {name!r}"
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
        except msgspec.ValidationError as error:
            flaw = flaw_of(error, text, expected)
            return msgspec.structs.replace(flaw, pointer=f"/{name}", detail=f"query parameter {name}: {flaw.detail}")


def without_none(expected: Any) -> Any:
    """Return `X` for `X | None`: the type of an optional parameter."""
    options = getattr(expected, "__args__", ())
    return next(option for option in options if option is not NoneType) if NoneType in options else expected


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise InvalidInput(f"malformed query string: {error}") from error


def _plain(text: str, expected: Any) -> Any:
    """Convert the text to a number or boolean if the expected type is one and the text has that form."""
    kind = without_none(expected)
    kind = getattr(kind, "__origin__", kind)
    if kind is int and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if kind is float and _NUMBER.fullmatch(text):
        return float(text)
    return _TRUTH.get(text, text) if kind is bool else text


_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_TRUTH = {"true": True, "false": False}
