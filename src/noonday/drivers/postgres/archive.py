"""Read jobs and executions, and store settings, in PostgreSQL."""

from collections.abc import Collection, Mapping
from typing import Any

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.sql.named_sql import load
from noonday.model.audit import AuditEntry
from noonday.model.batch import Mark
from noonday.model.execution import Execution, State
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decided, Decision, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId, is_id
from noonday.model.job import Job, JobState
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

SQL = load("noonday.drivers.postgres", "archive")
FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LAST_NUMBER = 2**63 - 1
_LAST_MS = 2**48 - 1

_job_row = tuple[Job, Fire | None, bool]
_listed_row = tuple[Job, Fire | None, bool, int]
_webhook_row = tuple[_job_row, bool, Execution | None]
_dead_row = tuple[Execution, int, bool, ExecutionId | None, int | None, str | None]
_call_page = tuple[list[KnownCall], int, str | None]
_audit_row = tuple[int, tuple[TenantId, int, str, str, str, dict[str, object]]]
_worker_row = tuple[str, str, int, dict[str, int], int, int, str, tuple[str, ...], list[tuple[str, str]]]


class PostgresArchive(Archive):
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
        if not is_id(before) or not _can_be_stored(*filters):
            return []
        rows = await self._decode(list[_listed_row], SQL.jobs, tenant, before, *filters, limit)
        return [JobRow(*row) for row in rows]

    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        kind, ids = list[tuple[JobId, bytes | None]], [job for job in jobs if is_id(job)]
        return dict(await self._decode(kind, SQL.payloads, tenant, ids))

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

    async def payload_of(self, tenant: TenantId, job_id: JobId, revision: int) -> bytes | None:
        if not is_id(job_id):
            return None
        payload: bytes | None = await self._database.value(SQL.payload, tenant, job_id, revision)
        return payload

    async def list_calls(
        self, tenant: TenantId, where: CallFilter, after: str | None, limit: int, most: int
    ) -> CallPage:
        first = FIRST_ID if where.since_ms is None else _first_id_at(where.since_ms)
        until = LAST_ID if where.until_ms is None else _first_id_at(where.until_ms)
        ids = [after or LAST_ID] if where.job_id is None else [after or LAST_ID, where.job_id]
        if not all(map(is_id, ids)) or not _can_be_stored(where.endpoint):
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

    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        jobs, revisions = [job for job, _ in wanted], [revision for _, revision in wanted]
        rows = await self._database.fetch(SQL.definitions, tenant, jobs, revisions)
        return {(job, revision): Definition(name, JobState(state), *rest) for job, revision, name, state, *rest in rows}

    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        before = LAST_ID if after is None else after
        ids = [before] if where.job_id is None else [before, where.job_id]
        if not all(map(is_id, ids)) or not _can_be_stored(where.pool, where.handler, where.endpoint, where.error):
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

    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        async with self._database.session() as session:
            return await _pools(session, now_ms, name, tenant)

    async def pool_names(self) -> list[str]:
        rows = await self._decode(list[tuple[str, PoolSettings]], SQL.pools, None)
        return [name for name, _ in rows]

    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None:
        found: HandlerInfo | None = await self._decode(HandlerInfo, SQL.handler, pool, handler)
        return found

    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        async with self._database.transaction() as session:
            await session.execute(SQL.put_pool, name, as_json(settings))
            await _set_caps(session, NOBODY, caps_of_pool(name, settings))
            await _add_audit(session, audit)

    async def list_workers(self) -> list[WorkerRow]:
        async with self._database.session() as session:
            return await _workers(session)

    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None:
        row = await self._database.row(SQL.tenant, tenant)
        return (read_stored(row[0], TenantSettings), row[1]) if row else None

    async def pauses(self) -> list[Pause]:
        return [Pause(*row) for row in await self._database.fetch(SQL.pauses)]

    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        await self._audited(SQL.add_pause, pause, audit)

    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        await self._audited(SQL.remove_pause, (kind, name), audit)

    async def _audited(self, query: str, parameters: tuple[Any, ...], audit: AuditEntry) -> None:
        async with self._database.transaction() as session:
            await session.execute(query, *parameters)
            await _add_audit(session, audit)

    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        rows = await self._database.fetch(SQL.tenants_after, seq)
        return [(TenantId(id_), read_stored(text, TenantSettings), number) for id_, text, number in rows]

    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, Used]]:
        rows = await self._database.fetch(SQL.usage, tenant, from_day, to_day)
        return [(day, Used(*counts)) for day, *counts in rows]

    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        async with self._database.transaction() as session:
            await session.execute(SQL.put_tenant, tenant, as_json(settings), audit.at_ms)
            await _set_caps(session, tenant, caps_of_tenant(tenant, settings))
            await _add_audit(session, audit)

    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        return int(await self._database.value(SQL.jobs_waiting, tenant, most))

    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        due_ms: int | None = await self._database.value(SQL.next_one_shot, tenant)
        return due_ms

    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        return {key for (key,) in await self._database.fetch(SQL.keys_taken, tenant, list(keys))}

    async def capped_pools(self) -> list[str]:
        return [name for (name,) in await self._database.fetch(SQL.capped_pools)]

    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        rows = await self._database.fetch(SQL.slots, [tenant for tenant, _ in keys], [name for _, name in keys])
        return {(tenant, name): Slots(used, cap) for tenant, name, used, cap in rows}

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

    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        if not _can_be_stored(target, subject):
            return []
        before = LAST_NUMBER if after is None else after
        rows = await self._decode(list[_audit_row], SQL.audit, tenant, target, subject, before, limit)
        return [(number, AuditEntry(*entry)) for number, entry in rows]

    async def note_visit(self, audit: AuditEntry) -> None:
        row = (audit.tenant, audit.at_ms, audit.subject, audit.action, audit.target, as_json(audit.detail))
        async with self._database.transaction() as session:
            await session.execute(SQL.note_visit, *row)

    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        query = (SQL.counts, now_ms) if tenant is None else (SQL.counts_of, now_ms, tenant)
        found: dict[str, int] = await self._decode(dict[str, int], *query)
        return found

    async def figures(self) -> list[Figures]:
        return [read_stored(row[0], Figures) for row in await self._database.fetch(SQL.figures)]

    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        rows = await self._database.fetch(SQL.declared, tenant, prefix)
        return [(key, JobId(job)) for key, job in rows]

    async def _decode(self, kind: Any, query: str, *parameters: Any) -> Any:
        async with self._database.session() as session:
            return await _decode(session, kind, query, *parameters)


async def _decode(session: Session, kind: Any, query: str, *parameters: Any) -> Any:
    """Return the decoded JSON value of a query. None if the query returns no row."""
    text = await session.fetchval(query, *parameters)
    return None if text is None else read_stored(text, kind)


def _can_be_stored(*texts: str | None) -> bool:
    """Return whether the texts can be in the database. PostgreSQL has no text with a NUL, and refuses it as a parameter."""
    return not any(text and "\0" in text for text in texts)


def _first_id_at(ms: int) -> str:
    time = f"{min(max(0, ms), _LAST_MS):012x}"
    return f"{time[:8]}-{time[8:]}-0000-0000-000000000000"


async def _set_caps(session: Session, owner: str, caps: Mapping[SlotKey, int | None]) -> None:
    names = [name for _, name in caps]
    await session.fetchval(SQL.set_caps, owner, names, [pool_in(name) for name in names], list(caps.values()))


async def _add_audit(session: Session, entry: AuditEntry) -> None:
    detail = as_json(entry.detail)
    await session.execute(SQL.add_audit, entry.tenant, entry.at_ms, entry.subject, entry.action, entry.target, detail)


async def _pools(session: Session, now_ms: int, name: str | None, tenant: TenantId | None) -> list[PoolRow]:
    settings = await _decode(session, list[tuple[str, PoolSettings]], SQL.pools, name)
    handlers = await _decode(session, list[tuple[str, str, HandlerInfo]], SQL.handlers)
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
    for execution in await _decode(session, list[Execution], SQL.running):
        running.setdefault(execution.worker_id, []).append(execution)
    return [
        WorkerRow(id_, host, pid, pools, started_ms, seen_ms, state, stuck, tuple(running.get(id_, ())))
        for id_, host, pid, pools, started_ms, seen_ms, state, stuck, _ in await _worker_rows(session)
    ]


async def _worker_rows(session: Session) -> list[_worker_row]:
    rows: list[_worker_row] = await _decode(session, list[_worker_row], SQL.workers)
    return rows
