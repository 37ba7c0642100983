"""Decode a JSON value that a query returns."""

import sqlite3
from typing import Any

from noonday.model.stored import read_stored


def decode(conn: sqlite3.Connection, kind: Any, query: str, *parameters: Any) -> Any:
    """Return the decoded JSON value of a query. None if the query returns no row."""
    row = conn.execute(query, parameters).fetchone()
    return None if row is None else read_stored(row[0], kind)
