"""Read jobs and executions, and store settings, in SQLite."""

import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.jobs import add_audit
from noonday.drivers.sqlite.write_sets import executions_of, rows_of
from noonday.model.audit import AuditEntry
from noonday.model.batch import Mark
from noonday.model.execution import Execution, State
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decided, Decision, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job
from noonday.model.message import HandlerInfo
from noonday.model.pause import Pause
from noonday.model.recent import Figures
from noonday.model.rows import (
    Ahead,
    CallPage,
    DeadLetter,
    Definition,
    JobRow,
    KnownCall,
    PoolRow,
    WebhookRow,
    WorkerRow,
    call_page,
)
from noonday.model.slots import NOBODY, SlotKey, Slots, caps_of_pool, caps_of_tenant, pool_in
from noonday.model.stored import read_stored
from noonday.model.usage import Used
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.archive import Archive
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "archive")
_job_row = tuple[Job, Fire | None, int]
_listed_row = tuple[Job, Fire | None, int, int]
_webhook_row = tuple[_job_row, int, Execution | None]
_call_row = tuple[Execution, int | None, int, ExecutionId | None, int | None]
_call_page = tuple[list[_call_row], int, str | None]
_LAST = "g"
"""Sorts after every id."""
_audit_row = tuple[str, int, str, str, str, dict[str, object]]


def _decode(conn: sqlite3.Connection, kind: Any, query: str, *parameters: Any) -> Any:
    row = conn.execute(query, parameters).fetchone()
    return None if row is None else read_stored(row[0], kind)


class SqliteArchive(Archive):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None:
        row = await self._database.read(lambda conn: _decode(conn, _job_row, SQL.job, tenant, job_id))
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
        rows = await self._database.query(lambda conn: _decode(conn, list[_listed_row], SQL.jobs, *parameters))
        return [JobRow(job, fire, bool(is_open), size) for job, fire, is_open, size in rows]

    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        kind, ids = list[tuple[JobId, bytes | None]], as_json(list(jobs))
        return dict(await self._database.query(lambda conn: _decode(conn, kind, SQL.payloads, tenant, ids)))

    async def list_tasks(self, tenant: TenantId, status: str | None, offset: int, limit: int) -> list[WebhookRow]:
        rows = await self._database.query(
            lambda conn: _decode(conn, list[_webhook_row], SQL.tasks, tenant, status, offset, limit)
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
            lambda conn: _decode(conn, Execution, SQL.execution, tenant, execution_id)
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

    async def payload_of(self, tenant: TenantId, job_id: JobId, revision: int) -> bytes | None:
        row = await self._database.read(
            lambda conn: _decode(conn, tuple[bytes | None], SQL.payload, tenant, job_id, revision)
        )
        return row[0] if row else None

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
        rows, examined, last = await self._database.query(lambda conn: _decode(conn, _call_page, query, *parameters))
        return call_page([_known(*row) for row in rows], limit, last if examined >= most else None)

    async def find_calls(self, tenant: TenantId, executions: Collection[str]) -> dict[ExecutionId, KnownCall]:
        ids = as_json(list(executions))
        rows = await self._database.query(lambda conn: _decode(conn, list[_call_row], SQL.known_calls, tenant, ids))
        return {row[0].id: _known(*row) for row in rows}

    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        revisions = as_json(list(wanted))
        kind = list[tuple[JobId, int, Definition]]
        rows = await self._database.query(lambda conn: _decode(conn, kind, SQL.definitions, tenant, revisions))
        return {(job, revision): definition for job, revision, definition in rows}

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
        rows = await self._database.query(lambda conn: _decode(conn, kind, SQL.dead, *parameters))
        return [DeadLetter(execution, died, bool(archived), *rest) for execution, died, archived, *rest in rows]

    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.dead_letter, (tenant, execution_id)).fetchone())
        return (row[0], bool(row[1]), row[2]) if row else None

    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        return await self._database.query(lambda conn: _pools(conn, now_ms, name, tenant))

    async def pool_names(self) -> list[str]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.pools, None))
        return [row[0] for row in rows]

    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None:
        found: HandlerInfo | None = await self._database.read(
            lambda conn: _decode(conn, HandlerInfo, SQL.handler, pool, handler)
        )
        return found

    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.put_pool, (name, as_json(settings)))
            _set_caps(conn, NOBODY, caps_of_pool(name, settings))
            add_audit(conn, audit)

        await self._database.write(work)

    async def list_workers(self) -> list[WorkerRow]:
        return await self._database.query(_workers)

    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.tenant, (tenant,)).fetchone())
        return (read_stored(row[0], TenantSettings), row[1]) if row else None

    async def pauses(self) -> list[Pause]:
        return [Pause(*row) for row in await self._database.read(lambda conn: rows_of(conn, SQL.pauses))]

    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        await self._audited(SQL.add_pause, pause, audit)

    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        await self._audited(SQL.remove_pause, (kind, name), audit)

    async def _audited(self, query: str, parameters: tuple[Any, ...], audit: AuditEntry) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(query, tuple(parameters))
            add_audit(conn, audit)

        await self._database.write(work)

    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.tenants_after, seq))
        return [(TenantId(id_), read_stored(text, TenantSettings), number) for id_, text, number in rows]

    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, Used]]:
        rows = await self._database.query(lambda conn: rows_of(conn, SQL.usage, tenant, from_day, to_day))
        return [(day, Used(*counts)) for day, *counts in rows]

    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.put_tenant, (tenant, as_json(settings), audit.at_ms))
            _set_caps(conn, tenant, caps_of_tenant(tenant, settings))
            add_audit(conn, audit)

        await self._database.write(work)

    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        row = await self._database.read(lambda conn: conn.execute(SQL.jobs_waiting, (tenant, most)).fetchone())
        return int(row[0])

    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.next_one_shot, (tenant,)).fetchone())
        return row[0] if row else None

    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        names = as_json(list(keys))
        return {key for (key,) in await self._database.read(lambda conn: rows_of(conn, SQL.keys_taken, tenant, names))}

    async def capped_pools(self) -> list[str]:
        return [name for (name,) in await self._database.read(lambda conn: rows_of(conn, SQL.capped_pools))]

    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        slots = as_json(list(keys))
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.slots, slots))
        return {(tenant, name): Slots(used, cap) for tenant, name, used, cap in rows}

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

    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        kind = list[tuple[int, _audit_row]]
        rows = await self._database.query(
            lambda conn: _decode(conn, kind, SQL.audit, tenant, target, subject, after, limit)
        )
        return [(number, AuditEntry(TenantId(row[0]), *row[1:])) for number, row in rows]

    async def note_visit(self, audit: AuditEntry) -> None:
        row = (audit.tenant, audit.at_ms, audit.subject, audit.action, audit.target, as_json(audit.detail))
        await self._database.write(lambda conn: conn.execute(SQL.note_visit, row))

    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        query = (SQL.counts, now_ms) if tenant is None else (SQL.counts_of, now_ms, tenant)
        found: dict[str, int] = await self._database.query(lambda conn: _decode(conn, dict[str, int], *query))
        return found

    async def figures(self) -> list[Figures]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.figures))
        return [read_stored(text, Figures) for (text,) in rows]

    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.declared, tenant, prefix))
        return [(key, JobId(job)) for key, job in rows]


def _known(
    execution: Execution, died_ms: int | None, archived: int, retried_as: ExecutionId | None, resolved_ms: int | None
) -> KnownCall:
    return KnownCall(execution, died_ms, bool(archived), retried_as, resolved_ms)


def _id_at(ms: int) -> str:
    time = f"{max(0, ms):012x}"
    return f"{time[:8]}-{time[8:]}"


def _pools(conn: sqlite3.Connection, now_ms: int, name: str | None, tenant: TenantId | None) -> list[PoolRow]:
    settings = _decode(conn, list[tuple[str, PoolSettings]], SQL.pools, name)
    handlers = _decode(conn, list[tuple[str, str, HandlerInfo]], SQL.handlers)
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


def _set_caps(conn: sqlite3.Connection, owner: str, caps: Mapping[SlotKey, int | None]) -> None:
    for _, name in caps:
        conn.execute(SQL.uncap, (owner, name))
    for (_, name), cap in caps.items():
        if cap is not None:
            counted = conn.execute(SQL.count_in, (name, owner, pool_in(name))).rowcount
            conn.execute(SQL.cap, (owner, name, counted, cap))
    conn.execute(SQL.drop_free_slots)
