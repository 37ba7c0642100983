"""Create and edit jobs in PostgreSQL."""

from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import astuple

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.write_sets import TRIES, payload_of, until_unchanged
from noonday.drivers.sql.named_sql import load
from noonday.model.audit import AuditEntry
from noonday.model.change import Change, ChangeResult, NewJob
from noonday.model.errors import Conflict, NotFound, StoreUnavailable
from noonday.model.execution import WATCH_OVERLAP
from noonday.model.ids import ExecutionId, JobId, TenantId, is_id
from noonday.model.job import Job
from noonday.model.receipt import Receipt
from noonday.model.snapshot import ReadExecutions, Scope, Snapshot, SnapshotIncomplete
from noonday.model.stored import StoredDecoder
from noonday.ports.jobs import Decide, Jobs, Upsert
from noonday.transitions.editing import MAX_READS, Edit, fire_row, require_named_executions, too_many_reads
from noonday.transitions.rows import JobColumns, TimelineRow, job_columns, watch_of
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "jobs")
JOB_COLUMNS = JobColumns.__struct_fields__
FIRE_COLUMNS = TimelineRow.__struct_fields__
COPY_MIN_ROWS = 100
"""Number of jobs from which on COPY is worth its two more round trips. It costs a third of an INSERT."""
_found = StoredDecoder(Snapshot)


class PostgresJobs(Jobs):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(
        self,
        jobs: Sequence[NewJob],
        *,
        upsert: Upsert,
        audit: AuditEntry | None,
        seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
    ) -> list[ChangeResult | None]:
        async def attempt() -> list[ChangeResult | None] | None:
            async with self._database.session() as session:
                try:
                    async with session.transaction():
                        return await _add(session, jobs, upsert, audit, seal)
                except asyncpg.UniqueViolationError as error:
                    if error.constraint_name != "jobs_unique_key":
                        raise
                    # Another transaction has just taken the key. The next try edits the job that has it.
                    return None

        for _ in range(TRIES):
            if (added := await until_unchanged(attempt)) is not None:
                return added
        raise StoreUnavailable(f"gave up after {TRIES} write conflicts; retry")

    async def edit(
        self,
        tenant: TenantId,
        job_id: JobId,
        decide: Decide,
        *,
        show: Sequence[ExecutionId] = (),
        seal: Callable[[ChangeResult], Receipt] | None = None,
    ) -> ChangeResult:
        async def attempt() -> ChangeResult:
            async with self._database.transaction() as session:
                applied = await _edit(session, tenant, job_id, decide, show)
                if seal:
                    await keep_receipt(session, seal(applied))
                return applied

        return await until_unchanged(attempt)

    async def keep_receipt(self, receipt: Receipt) -> None:
        async with self._database.session() as session:
            await keep_receipt(session, receipt)

    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None:
        row = await self._database.row(SQL.receipt, tenant, key)
        return Receipt(**row) if row else None


async def _add(
    session: Session,
    jobs: Sequence[NewJob],
    upsert: Upsert,
    audit: AuditEntry | None,
    seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
) -> list[ChangeResult | None]:
    answers: list[ChangeResult | None] = [None] * len(jobs)
    await insert_jobs(session, await _without_taken_keys(session, jobs, upsert, answers))
    if audit:
        await add_audit(session, audit)
    if seal:
        await keep_receipt(session, seal(answers))
    return answers


async def insert_jobs(session: Session, jobs: Sequence[NewJob]) -> None:
    """Insert jobs in the order of their unique keys. Of two calls that use the same new keys, one waits at the first key."""
    jobs = sorted(jobs, key=lambda new: new.job.spec.unique_key or "")
    rows = [astuple(job_columns(new.job)) for new in jobs]
    fires = [astuple(fire_row(new.job, new.fire)) for new in jobs if new.fire]
    if len(rows) >= COPY_MIN_ROWS:
        await session.copy_records_to_table("jobs", records=rows, columns=JOB_COLUMNS)
        await session.copy_records_to_table("timeline", records=fires, columns=FIRE_COLUMNS)
    elif rows:
        await session.execute(SQL.add_jobs, *_columns(rows, JOB_COLUMNS), *_columns(fires, FIRE_COLUMNS))


def _columns(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


async def _without_taken_keys(
    session: Session, jobs: Sequence[NewJob], upsert: Upsert, answers: list[ChangeResult | None]
) -> list[NewJob]:
    """Return the jobs that are new. A job whose unique key is taken edits the job that has the key instead."""
    keyed = [new for new in jobs if new.job.spec.unique_key is not None]
    if not keyed:
        return list(jobs)
    tenant = keyed[0].job.tenant
    keys = [new.job.spec.unique_key for new in keyed]
    taken = {row["unique_key"]: row["id"] for row in await session.fetch(SQL.unique_keys, tenant, keys)}
    if len(taken) > 1:
        await session.fetchval(SQL.lock_jobs, tenant, list(taken.values()))
    fresh: list[NewJob] = []
    owned: list[tuple[int, NewJob, JobId]] = []
    for index, new in enumerate(jobs):
        key = new.job.spec.unique_key
        if key is None or key not in taken:
            fresh.append(new)
            taken[key] = new.job.id
        else:
            owned.append((index, new, JobId(taken[key])))
    if not owned:
        return fresh
    # The job that has a key may be an earlier one of this call.
    await insert_jobs(session, fresh)
    for index, new, owner in owned:
        answers[index] = await _edit(session, tenant, owner, _upserting(upsert, new.job), ())
    return []


def _upserting(upsert: Upsert, job: Job) -> Decide:
    return lambda before: upsert(before, job)


async def _edit(
    session: Session, tenant: TenantId, job_id: JobId, decide: Decide, show: Sequence[ExecutionId]
) -> ChangeResult:
    """Edit a job under the locks of its row, its fire row, and the dispatch rows and executions that it reads, in this order."""
    if not is_id(job_id) or await session.fetchval(SQL.lock_job, tenant, job_id) is None:
        raise NotFound(f"no job {job_id}")
    await session.fetchval(SQL.lock_rows, [job_id, *show])
    before, change = await _decide(
        session, await _snapshot(session, tenant, job_id, ReadExecutions(ids=frozenset(show))), decide
    )
    edit = Edit(before, change, await _existing(session, [new.id for new in change.executions]))
    if change.job:
        await _set_job(session, edit)
    created: int = await session.fetchval(SQL.write_rows, as_json(payload_of(edit.writes)), edit.writes.now_ms)
    await _finish(session, change, edit.writes.now_ms)
    after = await _snapshot(session, tenant, job_id, ReadExecutions(ids=frozenset(show)))
    return ChangeResult(after, tuple(edit.writes.entries), tuple(edit.writes.revocations), edit.fenced_pools, created)


async def _decide(session: Session, before: Snapshot, decide: Decide) -> tuple[Snapshot, Change]:
    """Decide, and read more executions as long as the decision needs them."""
    for _ in range(MAX_READS):
        try:
            change = decide(before)
            require_named_executions(before, change)
        except SnapshotIncomplete as unread:
            before = await _read_more(session, before, unread)
        else:
            return before, change
    raise too_many_reads(before.job)


async def _read_more(session: Session, before: Snapshot, unread: SnapshotIncomplete) -> Snapshot:
    job, read = before.job, before.read
    assert read is not None
    if unread.exist:
        # Under the locks of the job and its fire row, no other transaction can create or delete an execution.
        existing = await _existing(session, unread.exist)
        return msgspec.structs.replace(before, read=read.with_existing(unread.exist, existing))
    rows = await session.fetch(_ids_in(unread.scope, job), job.id) if unread.scope else []
    ids = {ExecutionId(row["id"]) for row in rows}.union(unread.ids)
    await session.fetchval(SQL.lock_rows, list(ids))
    return await _snapshot(session, job.tenant, job.id, read.reaching(unread.scope, ids))


def _ids_in(scope: Scope, job: Job) -> str:
    """Return the query for the ids in a scope. A job that allows overlap buffers nothing."""
    return SQL.unbuffered_ids if scope is Scope.UNBUFFERED and watch_of(job.spec) & WATCH_OVERLAP else SQL.open_ids


async def _snapshot(session: Session, tenant: TenantId, job_id: JobId, read: ReadExecutions) -> Snapshot:
    text = await session.fetchval(SQL.snapshot, tenant, job_id, list(read.ids), len(read.ids) + 1)
    if text is None:
        raise NotFound(f"no job {job_id}")
    return msgspec.structs.replace(_found.decode(text), read=read)


async def _existing(session: Session, ids: Sequence[ExecutionId]) -> set[ExecutionId]:
    if not ids:
        return set()
    return {ExecutionId(row["id"]) for row in await session.fetch(SQL.existing, ids)}


async def _set_job(session: Session, edit: Edit) -> None:
    job = edit.job
    if edit.new_revision:
        await session.execute(SQL.keep_revision, job.tenant, job.id)
    # Unless the edit changes the spec, fields that only a newer version knows are kept.
    await session.execute(SQL.set_job, *astuple(job_columns(job, with_spec=job.spec != edit.before.job.spec)))
    if edit.added_watch:
        await session.execute(SQL.watch_open, edit.added_watch, job.id)


async def _finish(session: Session, change: Change, now_ms: int) -> None:
    if change.dead:
        dead, retried_as = zip(*change.dead, strict=True)
        await session.execute(SQL.resolve_dead, dead, retried_as, now_ms)
    if change.audit:
        await add_audit(session, change.audit)


async def add_audit(session: Session, entry: AuditEntry) -> None:
    detail = as_json(entry.detail)
    await session.execute(SQL.add_audit, entry.tenant, entry.at_ms, entry.subject, entry.action, entry.target, detail)


async def keep_receipt(session: Session, receipt: Receipt) -> None:
    try:
        await session.execute(SQL.add_receipt, *astuple(receipt))
    except asyncpg.UniqueViolationError:
        raise Conflict("another request with this Idempotency-Key was answered in the meantime") from None
