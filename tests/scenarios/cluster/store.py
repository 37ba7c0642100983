"""What a scenario sees in the database of a cluster, and the copy of it that the checker reads."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import asyncpg

from noonday.drivers.postgres.connection import Database, PostgresOptions
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, connect
from noonday.drivers.sqlite.store import prepare

_COPIED = ("jobs", "timeline", "executions", "decisions", "slots")


class StoreView:
    """One session, made anew when it broke."""

    def __init__(self, url: str, schema: str) -> None:
        self._options = PostgresOptions(url, schema=schema, sessions=1)
        self._session: asyncpg.Connection | None = None

    async def prepare(self) -> None:
        database = await Database.open(self._options)
        await migrate(database)
        await database.close()

    async def drop(self) -> None:
        await self.query(f"DROP SCHEMA IF EXISTS {self._options.schema} CASCADE")
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def query(self, sql: str, *parameters: Any) -> Sequence[Any]:
        if self._session is None or self._session.is_closed():
            settings = {"search_path": self._options.schema}
            self._session = await asyncpg.connect(self._options.url, server_settings=settings, timeout=5)
        return await self._session.fetch(sql, *parameters, timeout=20)

    async def copy(self) -> sqlite3.Connection:
        """Everything that the checker looks at, in the tables that it knows."""
        copied = connect(MEMORY, FileOptions("OFF"))
        prepare(copied)
        for table in _COPIED:
            names = [row[1] for row in copied.execute(f"PRAGMA table_info({table})")]
            rows = await self.query(f"SELECT {', '.join(_plain(name) for name in names)} FROM {table}")
            places = ", ".join("?" * len(names))
            copied.executemany(
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", [tuple(row) for row in rows]
            )
        return copied


def _plain(name: str) -> str:
    return f"{name}::text" if name in ("id", "key", "job_id", "retry_of") else name
