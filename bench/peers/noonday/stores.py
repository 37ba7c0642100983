"""What the stores of both modes say about jobs, read from outside the engine."""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.model.execution import State

_LOOK = """
SELECT EXISTS (SELECT 1 FROM timeline WHERE due_ms <= {until}) OR EXISTS (SELECT 1 FROM executions WHERE state < 2)
"""
_COUNT = f"""
SELECT count(CASE WHEN state = {int(State.SUCCEEDED)} THEN 1 END), count(CASE WHEN state < 2 THEN 1 END), max(finished_ms)
FROM executions WHERE due_ms BETWEEN {{since}} AND {{until}}
"""
_WAITING = "SELECT count(*) FROM timeline WHERE due_ms BETWEEN {since} AND {until}"


class Outside(ABC):
    """A reader of committed rows."""

    @abstractmethod
    async def row(self, query: str) -> tuple[Any, ...]: ...

    async def is_open(self, until_ms: int) -> bool:
        """Whether anything that was due until then is not done."""
        (found,) = await self.row(_LOOK.format(until=int(until_ms)))
        return bool(found)

    async def count(self, since_ms: int, until_ms: int) -> dict[str, Any]:
        """The answer to the order `count`."""
        due = {"since": int(since_ms), "until": int(until_ms)}
        recorded, unfinished, last_ms = await self.row(_COUNT.format(**due))
        (waiting,) = await self.row(_WAITING.format(**due))
        return {"recorded": recorded, "left": unfinished + waiting, "lastMs": last_ms}


class OutsideFile(Outside):
    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    async def row(self, query: str) -> tuple[Any, ...]:
        return tuple(await asyncio.to_thread(lambda: self._conn.execute(query).fetchone()))


class OutsideDatabase(Outside):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def row(self, query: str) -> tuple[Any, ...]:
        (found,) = await self._database.fetch(query)
        return tuple(found)


@asynccontextmanager
async def outside_file(data: Path) -> AsyncIterator[OutsideFile]:
    url = f"{data.as_uri()}?mode=ro"
    with closing(sqlite3.connect(url, uri=True, isolation_level=None, check_same_thread=False)) as conn:
        conn.execute("PRAGMA busy_timeout = 5000")
        yield OutsideFile(conn)
