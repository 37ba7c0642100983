"""Count work in PostgreSQL."""

from typing import Any

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.stored_json import decode
from noonday.drivers.sql.named_sql import load
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

SQL = load("noonday.drivers.postgres", "workload")
_worker_row = tuple[str, str, int, dict[str, int], int, int, str, tuple[str, ...], list[tuple[str, str]]]


class PostgresWorkload(Workload):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        async with self._database.session() as session:
            return await _pools(session, now_ms, name, tenant)

    async def list_workers(self) -> list[WorkerRow]:
        async with self._database.session() as session:
            return await _workers(session)

    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        query = (SQL.counts, now_ms) if tenant is None else (SQL.counts_of, now_ms, tenant)
        found: dict[str, int] = await self._decode(dict[str, int], *query)
        return found

    async def figures(self) -> list[Figures]:
        return [read_stored(row[0], Figures) for row in await self._database.fetch(SQL.figures)]

    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, Used]]:
        rows = await self._database.fetch(SQL.usage, tenant, from_day, to_day)
        return [(day, Used(*counts)) for day, *counts in rows]

    async def due_before(
        self, mark: Mark, most: int, *, tenant: TenantId | None = None, pool: str | None = None
    ) -> Ahead:
        if tenant is None:
            return await self._ahead(SQL.due_before, *mark, most, pool)
        return await self._ahead(SQL.due_before_of, *mark, most, tenant, pool)

    async def due_before_with_key(self, mark: Mark, most: int, tenant: TenantId, key: str) -> Ahead:
        return await self._ahead(SQL.due_before_with_key, *mark, most, tenant, key)

    async def _ahead(self, query: str, due_ms: int, key: str, most: int, *filters: str | None) -> Ahead:
        count, tenants, examined = await self._database.row(query, due_ms, key, most, *filters)
        return Ahead(count, tenants, is_least=examined >= most)

    async def _decode(self, kind: Any, query: str, *parameters: Any) -> Any:
        async with self._database.session() as session:
            return await decode(session, kind, query, *parameters)


async def _pools(session: Session, now_ms: int, name: str | None, tenant: TenantId | None) -> list[PoolRow]:
    settings = await decode(session, list[tuple[str, PoolSettings]], SQL.pools, name)
    handlers = await decode(session, list[tuple[str, str, HandlerInfo]], SQL.handlers)
    alive = [worker for worker in await _worker_rows(session) if worker[6] == "ALIVE"]
    dispatched = {(pool, state): n for pool, state, n in await session.fetch(SQL.open_by_pool, tenant)}
    due = dict(await session.fetch(SQL.due_by_pool, now_ms, tenant))
    return [
        PoolRow(
            name=pool,
            settings=setting,
            handlers=tuple(
                (info, sum((handler_pool, handler) in worker[8] for worker in alive))
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


async def _workers(session: Session) -> list[WorkerRow]:
    running: dict[str | None, list[Execution]] = {}
    for execution in await decode(session, list[Execution], SQL.running):
        running.setdefault(execution.worker_id, []).append(execution)
    return [
        WorkerRow(id_, host, pid, pools, started_ms, seen_ms, state, stuck, tuple(running.get(id_, ())))
        for id_, host, pid, pools, started_ms, seen_ms, state, stuck, _ in await _worker_rows(session)
    ]


async def _worker_rows(session: Session) -> list[_worker_row]:
    rows: list[_worker_row] = await decode(session, list[_worker_row], SQL.workers)
    return rows
