"""Sessions of SQLite for the stores that both SQL databases share."""

import sqlite3
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from noonday.drivers.sql.sessions import Row, SqlSession, SqlSessions, Work
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.transitions.write_set import as_json

T = TypeVar("T")


class SqliteSession(SqlSession):
    def __init__(self, conn: sqlite3.Connection) -> None:
        self.raw = conn

    async def fetch(self, query: str, *parameters: Any) -> Sequence[Row]:
        return self._execute(query, parameters).fetchall()

    async def row(self, query: str, *parameters: Any) -> Row | None:
        return self._execute(query, parameters).fetchone()

    async def value(self, query: str, *parameters: Any) -> Any:
        row = self._execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def _execute(self, query: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.raw.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(query, [as_json(each) if isinstance(each, list) else each for each in parameters])


class SqliteSessions(SqlSessions):
    """Runs work in the threads of the database: writes in groups with one sync, and reads beside them."""

    dialect = "noonday.drivers.sqlite"

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def write(self, work: Work[T]) -> T:
        return await self._database.write(lambda conn: run_through(work(SqliteSession(conn))))

    async def read(self, work: Work[T]) -> T:
        return await self._database.read(lambda conn: run_through(work(SqliteSession(conn))))

    async def query(self, work: Work[T]) -> T:
        return await self._database.query(lambda conn: run_through(work(SqliteSession(conn))))


def run_through(work: Awaitable[T]) -> T:
    """Run work to its end in this thread, without an event loop. Raises RuntimeError if it awaits more than its session."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        answer: T = end.value
        return answer
    steps.close()
    raise RuntimeError("work in a session of SQLite may await only the session")
