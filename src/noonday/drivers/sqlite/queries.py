"""Read jobs, executions and dead letters in SQLite."""

from collections.abc import Collection
from typing import Any

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.stored_json import decode
from noonday.drivers.sqlite.write_sets import executions_of, rows_of
from noonday.model.execution import Execution, State
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decided, Decision, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job
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
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "queries")
_job_row = tuple[Job, Fire | None, int]
_listed_row = tuple[Job, Fire | None, int, int]
_webhook_row = tuple[_job_row, int, Execution | None]
_call_row = tuple[Execution, int | None, int, ExecutionId | None, int | None]
_call_page = tuple[list[_call_row], int, str | None]
_LAST = "g"
"""Sorts after every id."""


class SqliteQueryStore(QueryStore):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None:
        row = await self._database.read(lambda conn: decode(conn, _job_row, SQL.job, tenant, job_id))
        return JobRow(row[0], row[1], bool(row[2])) if row else None

    async def list_jobs(self, tenant: TenantId, where: JobFilter, after: str | None, limit: int) -> list[JobRow]:
        parameters = (
            tenant,
            after,
            where.type,
            where.pool,
            where.handler,
            where.name,
            where.unique_key,
            where.tag,
            where.state,
            limit,
        )
        rows = await self._database.query(lambda conn: decode(conn, list[_listed_row], SQL.jobs, *parameters))
        return [JobRow(job, fire, bool(is_open), size) for job, fire, is_open, size in rows]

    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        kind, ids = list[tuple[JobId, bytes | None]], as_json(list(jobs))
        return dict(await self._database.query(lambda conn: decode(conn, kind, SQL.payloads, tenant, ids)))

    async def payload_of(self, tenant: TenantId, job_id: JobId, revision: int) -> bytes | None:
        row = await self._database.read(
            lambda conn: decode(conn, tuple[bytes | None], SQL.payload, tenant, job_id, revision)
        )
        return row[0] if row else None

    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        revisions = as_json(list(wanted))
        kind = list[tuple[JobId, int, Definition]]
        rows = await self._database.query(lambda conn: decode(conn, kind, SQL.definitions, tenant, revisions))
        return {(job, revision): definition for job, revision, definition in rows}

    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        names = as_json(list(keys))
        return {key for (key,) in await self._database.read(lambda conn: rows_of(conn, SQL.keys_taken, tenant, names))}

    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.declared, tenant, prefix))
        return [(key, JobId(job)) for key, job in rows]

    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        row = await self._database.read(lambda conn: conn.execute(SQL.jobs_waiting, (tenant, most)).fetchone())
        return int(row[0])

    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.next_one_shot, (tenant,)).fetchone())
        return row[0] if row else None

    async def list_tasks(self, tenant: TenantId, status: str | None, offset: int, limit: int) -> list[WebhookRow]:
        rows = await self._database.query(
            lambda conn: decode(conn, list[_webhook_row], SQL.tasks, tenant, status, offset, limit)
        )
        return [
            WebhookRow(JobRow(job, fire, bool(is_open)), bool(runs), latest)
            for (job, fire, is_open), runs, latest in rows
        ]

    async def count_tasks(self, tenant: TenantId, status: str | None, most: int) -> int:
        row = await self._database.query(lambda conn: conn.execute(SQL.count_tasks, (tenant, status, most)).fetchone())
        return int(row[0])

    async def find_execution(self, tenant: TenantId, execution_id: ExecutionId) -> Execution | None:
        found: Execution | None = await self._database.read(
            lambda conn: decode(conn, Execution, SQL.execution, tenant, execution_id)
        )
        return found

    async def list_executions(
        self, tenant: TenantId, job_id: JobId, *, state: str | None, after: str | None, limit: int
    ) -> list[Execution]:
        number = None if state is None else int(State[state])
        return await self._database.query(
            lambda conn: executions_of(conn, SQL.executions, tenant, job_id, after, number, limit)
        )

    async def executions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Execution]:
        first, last = _id_at(from_ms), _id_at(to_ms + 1)
        return await self._database.query(
            lambda conn: executions_of(conn, SQL.executions_between, job_id, first, last, limit)
        )

    async def decisions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Decision]:
        rows = await self._database.query(
            lambda conn: rows_of(conn, SQL.decisions_between, job_id, from_ms, to_ms, limit)
        )
        return [Decision(job, from_, to, count, Decided(outcome), why) for job, from_, to, count, outcome, why in rows]

    async def list_calls(
        self, tenant: TenantId, where: CallFilter, after: str | None, limit: int, most: int
    ) -> CallPage:
        first = "" if where.since_ms is None else _id_at(where.since_ms)
        before = min(after or _LAST, _LAST if where.until_ms is None else _id_at(where.until_ms))
        state = None if where.state is None else int(State[where.state])
        parameters: tuple[Any, ...] = (tenant, before, first, state, where.endpoint, most, limit + 1)
        query = SQL.calls
        if where.job_id is not None:
            query, parameters = SQL.calls_of_task, (*parameters, where.job_id)
        rows, examined, last = await self._database.query(lambda conn: decode(conn, _call_page, query, *parameters))
        return call_page([_known(*row) for row in rows], limit, last if examined >= most else None)

    async def find_calls(self, tenant: TenantId, executions: Collection[str]) -> dict[ExecutionId, KnownCall]:
        ids = as_json(list(executions))
        rows = await self._database.query(lambda conn: decode(conn, list[_call_row], SQL.known_calls, tenant, ids))
        return {row[0].id: _known(*row) for row in rows}

    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        parameters = (
            tenant,
            int(where.archived),
            where.job_id,
            where.pool,
            where.handler,
            where.since_ms,
            where.until_ms,
            after,
            limit,
            int(where.is_task),
            where.endpoint,
            where.error,
        )
        kind = list[tuple[Execution, int, int, ExecutionId | None, int | None, str | None]]
        rows = await self._database.query(lambda conn: decode(conn, kind, SQL.dead, *parameters))
        return [DeadLetter(execution, died, bool(archived), *rest) for execution, died, archived, *rest in rows]

    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.dead_letter, (tenant, execution_id)).fetchone())
        return (row[0], bool(row[1]), row[2]) if row else None


def _known(
    execution: Execution, died_ms: int | None, archived: int, retried_as: ExecutionId | None, resolved_ms: int | None
) -> KnownCall:
    return KnownCall(execution, died_ms, bool(archived), retried_as, resolved_ms)


def _id_at(ms: int) -> str:
    time = f"{max(0, ms):012x}"
    return f"{time[:8]}-{time[8:]}"
