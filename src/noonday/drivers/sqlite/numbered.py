"""Connections that bind the parameters of numbered placeholders (`?1`) by their number.

SQLite treats a numbered placeholder as a named one. Python 3.12 warns if it gets a sequence, and Python 3.14 refuses it.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Self

_NUMBERS = tuple(map(str, range(1, 100)))


class NumberedConnection(sqlite3.Connection):
    """Connection whose statements take their parameters by number."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql, _by_number(sql, parameters))

    def cursor(self, factory: Any = None, /) -> Any:
        return super().cursor(factory or _NumberedCursor)


class _NumberedCursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        return super().execute(sql, _by_number(sql, parameters))


def _by_number(sql: str, parameters: Any) -> Any:
    if parameters and isinstance(parameters, Sequence) and "?1" in sql:
        return dict(zip(_NUMBERS, parameters, strict=False))
    return parameters
