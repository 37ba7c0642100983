"""Committed rows of a data file, read from outside the engine."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noonday.model.execution import State

_OPEN = "SELECT EXISTS (SELECT 1 FROM executions INDEXED BY executions_open WHERE state < 2)"
_SUCCEEDED = "SELECT id FROM executions WHERE state = ? AND due_ms BETWEEN ? AND ?"


class StoredRows:
    """Reads committed rows; a row it can see has been synced."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def any_open(self) -> bool:
        """Whether an execution is pending or running."""
        return bool(self._conn.execute(_OPEN).fetchone()[0])

    def succeeded(self, first_ms: int, last_ms: int) -> list[str]:
        """The executions due in a range that ended well."""
        return [name for (name,) in self._conn.execute(_SUCCEEDED, (int(State.SUCCEEDED), first_ms, last_ms))]

    def count_jobs(self) -> int:
        count: int = self._conn.execute("SELECT count(*) FROM jobs").fetchone()[0]
        return count


@contextmanager
def open_stored_rows(data: str) -> Iterator[StoredRows]:
    conn = sqlite3.connect(f"{Path(data).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        conn.execute("PRAGMA busy_timeout = 5000")
        yield StoredRows(conn)
    finally:
        conn.close()
