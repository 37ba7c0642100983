"""Read jobs, executions and dead letters in PostgreSQL."""

from collections.abc import Collection
from typing import Any

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.stored_json import can_be_stored, decode
from noonday.drivers.sql.named_sql import load
from noonday.model.execution import Execution, State
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decided, Decision, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId, is_id
from noonday.model.job import Job, JobState
from noonday.model.rows import (
    CallPage,
    DeadLetter,
    Definition,
    JobRow,
    KnownCall,
    WebhookRow,
    call_page,
)
from noonday.ports.queries import QueryStore

SQL = load("noonday.drivers.postgres", "queries")
FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_LAST_MS = 2**48 - 1
_job_row = tuple[Job, Fire | None, bool]
_listed_row = tuple[Job, Fire | None, bool, int]
_webhook_row = tuple[_job_row, bool, Execution | None]
_dead_row = tuple[Execution, int, bool, ExecutionId | None, int | None, str | None]
_call_page = tuple[list[KnownCall], int, str | None]


class PostgresQueryStore(QueryStore):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None:
        if not is_id(job_id):
            return None
        row = await self._decode(_job_row, SQL.job, tenant, job_id)
        return JobRow(*row) if row else None

    async def list_jobs(self, tenant: TenantId, where: JobFilter, after: str | None, limit: int) -> list[JobRow]:
        before = LAST_ID if after is None else after
        filters = (where.type, where.pool, where.handler, where.name, where.unique_key, where.tag, where.state)
        if not is_id(before) or not can_be_stored(*filters):
            return []
        rows = await self._decode(list[_listed_row], SQL.jobs, tenant, before, *filters, limit)
        return [JobRow(*row) for row in rows]

    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        kind, ids = list[tuple[JobId, bytes | None]], [job for job in jobs if is_id(job)]
        return dict(await self._decode(kind, SQL.payloads, tenant, ids))

    async def payload_of(self, tenant: TenantId, job_id: JobId, revision: int) -> bytes | None:
        if not is_id(job_id):
            return None
        payload: bytes | None = await self._database.value(SQL.payload, tenant, job_id, revision)
        return payload

    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        jobs, revisions = [job for job, _ in wanted], [revision for _, revision in wanted]
        rows = await self._database.fetch(SQL.definitions, tenant, jobs, revisions)
        return {(job, revision): Definition(name, JobState(state), *rest) for job, revision, name, state, *rest in rows}

    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        return {key for (key,) in await self._database.fetch(SQL.keys_taken, tenant, list(keys))}

    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        rows = await self._database.fetch(SQL.declared, tenant, prefix)
        return [(key, JobId(job)) for key, job in rows]

    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        return int(await self._database.value(SQL.jobs_waiting, tenant, most))

    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        due_ms: int | None = await self._database.value(SQL.next_one_shot, tenant)
        return due_ms

    async def list_tasks(self, tenant: TenantId, status: str | None, offset: int, limit: int) -> list[WebhookRow]:
        rows = await self._decode(list[_webhook_row], SQL.tasks, tenant, status, offset, limit)
        return [WebhookRow(JobRow(*row), runs, latest) for row, runs, latest in rows]

    async def count_tasks(self, tenant: TenantId, status: str | None, most: int) -> int:
        counted: int = await self._database.value(SQL.count_tasks, tenant, status, most)
        return counted

    async def find_execution(self, tenant: TenantId, execution_id: ExecutionId) -> Execution | None:
        if not is_id(execution_id):
            return None
        found: Execution | None = await self._decode(Execution, SQL.execution, tenant, execution_id)
        return found

    async def list_executions(
        self, tenant: TenantId, job_id: JobId, *, state: str | None, after: str | None, limit: int
    ) -> list[Execution]:
        before = LAST_ID if after is None else after
        if not is_id(job_id) or not is_id(before):
            return []
        number = None if state is None else int(State[state])
        found: list[Execution] = await self._decode(
            list[Execution], SQL.executions, tenant, job_id, before, number, limit
        )
        return found

    async def executions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Execution]:
        if not is_id(job_id):
            return []
        first, last = _first_id_at(from_ms), _first_id_at(to_ms + 1)
        found: list[Execution] = await self._decode(list[Execution], SQL.executions_between, job_id, first, last, limit)
        return found

    async def decisions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Decision]:
        if not is_id(job_id):
            return []
        rows = await self._database.fetch(SQL.decisions_between, job_id, from_ms, to_ms, limit)
        return [Decision(job, from_, to, count, Decided(outcome), why) for job, from_, to, count, outcome, why in rows]

    async def list_calls(
        self, tenant: TenantId, where: CallFilter, after: str | None, limit: int, most: int
    ) -> CallPage:
        first = FIRST_ID if where.since_ms is None else _first_id_at(where.since_ms)
        until = LAST_ID if where.until_ms is None else _first_id_at(where.until_ms)
        ids = [after or LAST_ID] if where.job_id is None else [after or LAST_ID, where.job_id]
        if not all(map(is_id, ids)) or not can_be_stored(where.endpoint):
            return CallPage([], None)
        state = None if where.state is None else int(State[where.state])
        parameters: tuple[Any, ...] = (tenant, min(ids[0], until), first, state, where.endpoint, most, limit + 1)
        query = SQL.calls
        if where.job_id is not None:
            query, parameters = SQL.calls_of_task, (*parameters, where.job_id)
        calls, examined, last = await self._decode(_call_page, query, *parameters)
        return call_page(calls, limit, last if examined >= most else None)

    async def find_calls(self, tenant: TenantId, executions: Collection[str]) -> dict[ExecutionId, KnownCall]:
        ids = [each for each in executions if is_id(each)]
        calls = await self._decode(list[KnownCall], SQL.known_calls, tenant, ids)
        return {call.execution.id: call for call in calls}

    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        before = LAST_ID if after is None else after
        ids = [before] if where.job_id is None else [before, where.job_id]
        if not all(map(is_id, ids)) or not can_be_stored(where.pool, where.handler, where.endpoint, where.error):
            return []
        rows = await self._decode(
            list[_dead_row],
            SQL.dead,
            tenant,
            where.archived,
            where.job_id,
            where.pool,
            where.handler,
            where.since_ms,
            where.until_ms,
            before,
            limit,
            where.is_task,
            where.endpoint,
            where.error,
        )
        return [DeadLetter(*row) for row in rows]

    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        if not is_id(execution_id):
            return None
        row = await self._database.row(SQL.dead_letter, tenant, execution_id)
        return tuple(row) if row else None

    async def _decode(self, kind: Any, query: str, *parameters: Any) -> Any:
        async with self._database.session() as session:
            return await decode(session, kind, query, *parameters)


def _first_id_at(ms: int) -> str:
    time = f"{min(max(0, ms), _LAST_MS):012x}"
    return f"{time[:8]}-{time[8:]}-0000-0000-000000000000"
