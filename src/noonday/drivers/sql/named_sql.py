"""Load named SQL statements from `.sql` files: a line `-- name: NAME`, a sentence of intent, the statement.

A statement has parameters by number (`$1` or `?1`), or by name (`:due_ms`). Named parameters are the fields of a row.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_NAMED_PARAMETER = re.compile(r"(?<![:\w']):([a-z_]+)\b")


class NamedSql:
    """The named statements of one file, as attributes."""

    def __init__(self, texts: dict[str, str], mark: str) -> None:
        """`mark` precedes the number of a parameter."""
        self.statements: dict[str, str] = {}
        self._fields: dict[str, tuple[str, ...]] = {}
        self._getters: dict[str, Callable[[object], tuple[Any, ...]]] = {}
        for name, text in texts.items():
            fields = tuple(dict.fromkeys(_NAMED_PARAMETER.findall(text)))
            self.statements[name] = statement = _numbered(text, fields, mark)
            self._fields[statement] = fields
            if len(fields) > 1:
                self._getters[statement] = attrgetter(*fields)

    def __getattr__(self, name: str) -> str:
        try:
            return self.statements[name]
        except KeyError:
            raise AttributeError(name) from None

    def fields(self, statement: str) -> tuple[str, ...]:
        """Return the named parameters of a statement, in the order of their numbers."""
        return self._fields[statement]

    def values(self, statement: str, row: object) -> tuple[Any, ...]:
        """Return the named parameters of a statement, two or more, from the fields of a row."""
        return self._getters[statement](row)


@cache
def load(package: str, port: str) -> NamedSql:
    """Return the statements of one file in the folder `sql` of a package."""
    text = files(package).joinpath("sql", f"{port}.sql").read_text("utf-8")
    _, *parts = _HEADING.split(text)
    texts = {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
    return NamedSql(texts, "$" if package.endswith(".postgres") else "?")


def _numbered(text: str, fields: tuple[str, ...], mark: str) -> str:
    numbers = {field: f"{mark}{number}" for number, field in enumerate(fields, 1)}
    return _NAMED_PARAMETER.sub(lambda found: numbers[found[1]], text)
