"""The database of a cluster as a scenario reads it, and its copy for the checker."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, connect
from noonday.drivers.sqlite.store import prepare

COPIED = ("jobs", "timeline", "executions", "decisions", "slots", "usage", "unreported", "workers")
_OPEN = "SELECT id FROM executions WHERE state < 2 UNION SELECT key FROM timeline WHERE kind = 1"
UNFINISHED = {
    "jobs": f"watch & 2 > 0 OR id IN (SELECT job_id FROM executions WHERE id IN ({_OPEN}))",
    "timeline": "true",
    "executions": f"id IN ({_OPEN})",
    "slots": "true",
}
"""Tables that the checker reads during a run, with a condition for their rows."""


class StoreView:
    """One session, opened again after it broke."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._options = PostgresOptions(url, schema=schema, sessions=1)
        self._session: asyncpg.Connection | None = None

    async def prepare(self) -> None:
        database = await PostgresDatabase.open(self._options)
        await migrate(database)
        await database.close()

    async def drop(self) -> None:
        await self.query(f"DROP SCHEMA IF EXISTS {self._options.schema} CASCADE")
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def query(self, sql: str, *parameters: Any) -> Sequence[Any]:
        return await (await self._open_session()).fetch(sql, *parameters, timeout=60)

    async def copy(self) -> sqlite3.Connection:
        """Copy all tables that the checker reads."""
        return await self._copy(dict.fromkeys(COPIED, "true"))

    async def copy_unfinished(self) -> sqlite3.Connection:
        """Copy the rows that are open or will be due, as of one commit."""
        return await self._copy(UNFINISHED)

    async def _copy(self, chosen: Mapping[str, str]) -> sqlite3.Connection:
        copied = new_copy()
        session = await self._open_session()
        async with session.transaction(isolation="repeatable_read", readonly=True):
            for table, which in chosen.items():
                names = [row[1] for row in copied.execute(f"PRAGMA table_info({table})")]
                words = f"SELECT {', '.join(plain(name) for name in names)} FROM {table} WHERE {which}"
                rows = await session.fetch(words, timeout=60)
                places = ", ".join("?" * len(names))
                copied.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", map(tuple, rows))
        return copied

    async def _open_session(self) -> asyncpg.Connection:
        if self._session is None or self._session.is_closed():
            settings = {"search_path": self._options.schema}
            self._session = await asyncpg.connect(self._options.url, server_settings=settings, timeout=60)
        return self._session


def new_copy() -> sqlite3.Connection:
    """Create empty tables for the checker."""
    copied = connect(MEMORY, FileOptions("OFF"))
    prepare(copied)
    copied.execute("CREATE TABLE unreported (execution_id TEXT PRIMARY KEY)")
    return copied


def plain(name: str) -> str:
    return f"{name}::text" if name in ("id", "key", "job_id", "retry_of", "execution_id") else name
