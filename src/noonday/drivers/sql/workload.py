"""Count work in a SQL database, and list its pools and workers."""

from typing import Any

import msgspec

from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.batch import Mark
from noonday.model.execution import Execution, State
from noonday.model.ids import TenantId
from noonday.model.message import HandlerInfo
from noonday.model.recent import Figures
from noonday.model.rows import EntriesAhead, PoolRow, WorkerRow
from noonday.model.stored import read_stored
from noonday.model.usage import UsageTotals
from noonday.model.view import PoolSettings
from noonday.ports.workload import Workload


class _Pool(msgspec.Struct, frozen=True):
    name: str
    settings: PoolSettings


class _Handler(msgspec.Struct, frozen=True):
    pool: str
    name: str
    info: HandlerInfo


class _Worker(WorkerRow, frozen=True, kw_only=True):
    handlers: list[tuple[str, str]]
    """(pool, handler)."""


class SqlWorkload(Workload):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("workload")

    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        return await self._sessions.query(lambda session: self._pools(session, now_ms, name, tenant))

    async def list_workers(self) -> list[WorkerRow]:
        return await self._sessions.query(self._workers)

    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        query = (self._sql.counts, now_ms) if tenant is None else (self._sql.counts_of, now_ms, tenant)
        counts: dict[str, int] = await self._query(dict[str, int], *query)
        return counts

    async def figures(self) -> list[Figures]:
        return [read_stored(row["recent"], Figures) for row in await self._sessions.fetch(self._sql.figures)]

    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, UsageTotals]]:
        days = await self._query(list[dict[str, int]], self._sql.usage, tenant, from_day, to_day)
        return [(each.pop("day"), UsageTotals(**each)) for each in days]

    async def due_before(
        self, mark: Mark, most: int, *, tenant: TenantId | None = None, pool: str | None = None
    ) -> EntriesAhead:
        if tenant is None:
            return await self._ahead(self._sql.due_before, *mark, most, pool)
        return await self._ahead(self._sql.due_before_of, *mark, most, tenant, pool)

    async def due_before_with_key(self, mark: Mark, most: int, tenant: TenantId, key: str) -> EntriesAhead:
        return await self._ahead(self._sql.due_before_with_key, *mark, most, tenant, key)

    async def _ahead(self, query: str, due_ms: int, key: str, most: int, *filters: str | None) -> EntriesAhead:
        (row,) = await self._sessions.query(lambda session: session.fetch(query, due_ms, key, most, *filters))
        return EntriesAhead(row["entries"], row["tenants"], is_least=row["examined"] >= most)

    async def _pools(
        self, session: SqlSession, now_ms: int, name: str | None, tenant: TenantId | None
    ) -> list[PoolRow]:
        pools: list[_Pool] = await session.decode(list[_Pool], self._sql.pools, name)
        handlers: list[_Handler] = await session.decode(list[_Handler], self._sql.handlers)
        workers: list[_Worker] = await session.decode(list[_Worker], self._sql.workers)
        dispatched = await session.fetch(self._sql.open_by_pool, tenant)
        due = await session.fetch(self._sql.due_by_pool, now_ms, tenant)
        alive = [worker for worker in workers if worker.state == "ALIVE"]
        by_state = {(row["pool"], row["state"]): row["count"] for row in dispatched}
        by_pool = {row["pool"]: row["count"] for row in due}
        return [
            PoolRow(
                name=pool.name,
                settings=pool.settings,
                handlers=_handlers_of(pool.name, handlers, alive),
                workers=sum(pool.name in worker.concurrency for worker in alive),
                capacity=sum(worker.concurrency.get(pool.name, 0) for worker in alive),
                queued=by_state.get((pool.name, State.PENDING), 0),
                running=by_state.get((pool.name, State.RUNNING), 0),
                due=by_pool.get(pool.name, 0),
            )
            for pool in pools
        ]

    async def _workers(self, session: SqlSession) -> list[WorkerRow]:
        running: dict[str | None, list[Execution]] = {}
        for execution in await session.decode(list[Execution], self._sql.running):
            running.setdefault(execution.worker_id, []).append(execution)
        workers: list[_Worker] = await session.decode(list[_Worker], self._sql.workers)
        return [msgspec.structs.replace(worker, running=tuple(running.get(worker.id, ()))) for worker in workers]

    async def _query(self, kind: Any, query: str, *parameters: Any) -> Any:
        return await self._sessions.query(lambda session: session.decode(kind, query, *parameters))


def _handlers_of(pool: str, handlers: list[_Handler], alive: list[_Worker]) -> tuple[tuple[HandlerInfo, int], ...]:
    return tuple(
        (each.info, sum((pool, each.name) in worker.handlers for worker in alive))
        for each in handlers
        if each.pool == pool
    )
