"""Count work in SQLite."""

import sqlite3

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.stored_json import decode
from noonday.drivers.sqlite.write_sets import executions_of, rows_of
from noonday.model.batch import Mark
from noonday.model.execution import Execution, State
from noonday.model.ids import TenantId
from noonday.model.message import HandlerInfo
from noonday.model.recent import Figures
from noonday.model.rows import (
    Ahead,
    PoolRow,
    WorkerRow,
)
from noonday.model.stored import read_stored
from noonday.model.usage import Used
from noonday.model.view import PoolSettings
from noonday.ports.workload import Workload

SQL = load("noonday.drivers.sqlite", "workload")


class SqliteWorkload(Workload):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        return await self._database.query(lambda conn: _pools(conn, now_ms, name, tenant))

    async def list_workers(self) -> list[WorkerRow]:
        return await self._database.query(_workers)

    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        query = (SQL.counts, now_ms) if tenant is None else (SQL.counts_of, now_ms, tenant)
        found: dict[str, int] = await self._database.query(lambda conn: decode(conn, dict[str, int], *query))
        return found

    async def figures(self) -> list[Figures]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.figures))
        return [read_stored(text, Figures) for (text,) in rows]

    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, Used]]:
        rows = await self._database.query(lambda conn: rows_of(conn, SQL.usage, tenant, from_day, to_day))
        return [(day, Used(*counts)) for day, *counts in rows]

    async def due_before(
        self, mark: Mark, most: int, *, tenant: TenantId | None = None, pool: str | None = None
    ) -> Ahead:
        return await self._ahead(SQL.due_before, *mark, most, tenant, pool)

    async def due_before_with_key(self, mark: Mark, most: int, tenant: TenantId, key: str) -> Ahead:
        return await self._ahead(SQL.due_before_with_key, *mark, most, tenant, key)

    async def _ahead(self, query: str, due_ms: int, key: str, most: int, *filters: str | None) -> Ahead:
        parameters = (due_ms, key, most, *filters)
        row = await self._database.query(lambda conn: conn.execute(query, parameters).fetchone())
        return Ahead(row[0], row[1], is_least=row[2] >= most)


def _pools(conn: sqlite3.Connection, now_ms: int, name: str | None, tenant: TenantId | None) -> list[PoolRow]:
    settings = decode(conn, list[tuple[str, PoolSettings]], SQL.pools, name)
    handlers = decode(conn, list[tuple[str, str, HandlerInfo]], SQL.handlers)
    alive = [worker for worker in rows_of(conn, SQL.workers) if worker[6] == "ALIVE"]
    dispatched = {(pool, state): n for pool, state, n in rows_of(conn, SQL.open_by_pool, tenant)}
    due = dict(rows_of(conn, SQL.due_by_pool, now_ms, tenant))
    return [
        PoolRow(
            name=pool,
            settings=setting,
            handlers=tuple(
                (info, sum([handler_pool, handler] in worker[8] for worker in alive))
                for handler_pool, handler, info in handlers
                if handler_pool == pool
            ),
            workers=sum(pool in worker[3] for worker in alive),
            capacity=sum(worker[3].get(pool, 0) for worker in alive),
            queued=dispatched.get((pool, State.PENDING), 0),
            running=dispatched.get((pool, State.RUNNING), 0),
            due=due.get(pool, 0),
        )
        for pool, setting in settings
    ]


def _workers(conn: sqlite3.Connection) -> list[WorkerRow]:
    running: dict[str | None, list[Execution]] = {}
    for execution in executions_of(conn, SQL.running):
        running.setdefault(execution.worker_id, []).append(execution)
    return [
        WorkerRow(id_, host, pid, pools, started_ms, seen_ms, state, tuple(stuck), tuple(running.get(id_, ())))
        for id_, host, pid, pools, started_ms, seen_ms, state, stuck, _ in rows_of(conn, SQL.workers)
    ]
