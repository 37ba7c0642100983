"""Create and edit jobs in SQLite."""

import sqlite3
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import executions_of, insert_many, rows_of, write
from noonday.model.audit import AuditEntry
from noonday.model.change import Applied, Change, NewJob
from noonday.model.errors import Conflict, NotFound
from noonday.model.execution import WATCH_OVERLAP
from noonday.model.firing import LANES, Fire
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job, JobState
from noonday.model.receipt import Receipt
from noonday.model.snapshot import Read, Scope, Snapshot, Unread
from noonday.model.stored import StoredDecoder
from noonday.ports.jobs import Decide, Jobs, Upsert
from noonday.transitions.editing import MAX_READS, Edit, fire_columns, require_named_executions, too_many_reads
from noonday.transitions.write_set import as_json, watch_of

SQL = load("noonday.drivers.sqlite", "jobs")
_job = StoredDecoder(Job)
_fire = msgspec.json.Decoder(Fire)
_spec = msgspec.json.Encoder().encode


class SqliteJobs(Jobs):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def add(
        self,
        jobs: Sequence[NewJob],
        *,
        upsert: Upsert,
        audit: AuditEntry | None,
        seal: Callable[[Sequence[Applied | None]], Receipt] | None,
    ) -> list[Applied | None]:
        return await self._database.write(lambda conn: _add(conn, jobs, upsert, audit, seal))

    async def edit(
        self,
        tenant: TenantId,
        job_id: JobId,
        decide: Decide,
        *,
        show: Sequence[ExecutionId] = (),
        seal: Callable[[Applied], Receipt] | None = None,
    ) -> Applied:
        def work(conn: sqlite3.Connection) -> Applied:
            applied = _edit(conn, tenant, job_id, decide, show)
            if seal:
                keep_receipt(conn, seal(applied))
            return applied

        return await self._database.write(work)

    async def keep_receipt(self, receipt: Receipt) -> None:
        await self._database.write(lambda conn: keep_receipt(conn, receipt))

    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.receipt, (tenant, key)).fetchone())
        return Receipt(*row) if row else None


def _add(
    conn: sqlite3.Connection,
    jobs: Sequence[NewJob],
    upsert: Upsert,
    audit: AuditEntry | None,
    seal: Callable[[Sequence[Applied | None]], Receipt] | None,
) -> list[Applied | None]:
    answers: list[Applied | None] = [None] * len(jobs)
    _insert(conn, _without_taken_keys(conn, jobs, upsert, answers))
    if audit:
        add_audit(conn, audit)
    if seal:
        keep_receipt(conn, seal(answers))
    return answers


def _insert(conn: sqlite3.Connection, jobs: Sequence[NewJob]) -> None:
    insert_many(conn, SQL.add_jobs, [job_columns(new.job) for new in jobs])
    insert_many(conn, SQL.add_fires, [fire_columns(new.job, new.fire) for new in jobs if new.fire])


def _without_taken_keys(
    conn: sqlite3.Connection, jobs: Sequence[NewJob], upsert: Upsert, answers: list[Applied | None]
) -> list[NewJob]:
    """Return the jobs that are new. A job whose unique key is taken edits the job that has the key instead."""
    keyed = [new for new in jobs if new.job.spec.unique_key is not None]
    if not keyed:
        return list(jobs)
    tenant = keyed[0].job.tenant
    taken = dict(rows_of(conn, SQL.unique_keys, tenant, as_json([new.job.spec.unique_key for new in keyed])))
    fresh: list[NewJob] = []
    for index, new in enumerate(jobs):
        key = new.job.spec.unique_key
        owner = taken.get(key)
        if owner is None:
            fresh.append(new)
            if key is not None:
                taken[key] = new.job.id
        else:
            if fresh:
                # The job that has the key may be an earlier one of this call.
                _insert(conn, fresh)
                fresh = []
            answers[index] = _edit(conn, tenant, JobId(owner), lambda s, j=new.job: upsert(s, j), ())  # type: ignore[misc]
    return fresh


def _edit(
    conn: sqlite3.Connection, tenant: TenantId, job_id: JobId, decide: Decide, show: Sequence[ExecutionId]
) -> Applied:
    before, change = _decide(conn, _snapshot(conn, tenant, job_id, Read(ids=frozenset(show))), decide)
    edit = Edit(before, change, _existing(conn, [new.id for new in change.executions]))
    if change.job:
        _set_job(conn, edit)
    created = write(conn, edit.writes)
    if change.dead:
        conn.execute(SQL.resolve_dead, (as_json(change.dead), edit.writes.now_ms))
    if change.audit:
        add_audit(conn, change.audit)
    after = _snapshot(conn, tenant, job_id, Read(ids=frozenset(show)))
    return Applied(after, tuple(edit.writes.entries), tuple(edit.writes.revocations), edit.fenced_pools, created)


def _set_job(conn: sqlite3.Connection, edit: Edit) -> None:
    job = edit.job
    if edit.new_revision:
        conn.execute(SQL.keep_revision, (job.tenant, job.id))
    # Unless the edit changes the spec, fields that only a newer version knows are kept.
    conn.execute(SQL.set_job, job_columns(job, with_spec=job.spec != edit.before.job.spec))
    if edit.added_watch:
        conn.execute(SQL.watch_open, (edit.added_watch, job.id))


def _existing(conn: sqlite3.Connection, ids: Sequence[ExecutionId]) -> set[ExecutionId]:
    if not ids:
        return set()
    return {ExecutionId(row[0]) for row in rows_of(conn, SQL.existing, as_json(ids))}


def _decide(conn: sqlite3.Connection, before: Snapshot, decide: Decide) -> tuple[Snapshot, Change]:
    """Decide, and read more executions as long as the decision needs them."""
    for _ in range(MAX_READS):
        try:
            change = decide(before)
            require_named_executions(before, change)
        except Unread as unread:
            before = _read_more(conn, before, unread)
        else:
            return before, change
    raise too_many_reads(before.job)


def _read_more(conn: sqlite3.Connection, before: Snapshot, unread: Unread) -> Snapshot:
    job, read = before.job, before.read
    assert read is not None
    if unread.exist:
        return msgspec.structs.replace(before, read=read.with_existing(unread.exist, _existing(conn, unread.exist)))
    ids = {ExecutionId(row[0]) for row in rows_of(conn, _ids_in(unread.scope, job), job.id)} if unread.scope else set()
    return _snapshot(conn, job.tenant, job.id, read.reaching(unread.scope, ids.union(unread.ids)))


def _ids_in(scope: Scope, job: Job) -> str:
    """Return the query for the ids in a scope. A job that allows overlap buffers nothing."""
    return SQL.unbuffered_ids if scope is Scope.UNBUFFERED and watch_of(job.spec) & WATCH_OVERLAP else SQL.open_ids


def _snapshot(conn: sqlite3.Connection, tenant: TenantId, job_id: JobId, read: Read) -> Snapshot:
    row = conn.execute(SQL.job, (tenant, job_id)).fetchone()
    if row is None:
        raise NotFound(f"no job {job_id}")
    fire = conn.execute(SQL.fire, (job_id,)).fetchone()
    executions = executions_of(conn, SQL.executions, job_id, as_json(sorted(read.ids)), len(read.ids) + 1)
    return Snapshot(_job.decode(row[0]), _fire.decode(fire[0]) if fire else None, tuple(executions), read)


def job_columns(job: Job, *, with_spec: bool = True) -> tuple[Any, ...]:
    """Return the columns of a job, in the order of `add_jobs` and `set_job`. Without the spec, an edit keeps the stored text."""
    spec = job.spec
    return (
        job.tenant,
        job.id,
        job.revision,
        int(job.state),
        spec.name,
        spec.type.value,
        spec.target.pool,
        spec.target.handler,
        LANES.index(spec.priority),
        # A cancelled job releases its key.
        None if job.state is JobState.CANCELLED else spec.unique_key,
        spec.timeout_sec,
        spec.heartbeat_timeout_sec,
        spec.start_deadline_sec,
        watch_of(spec),
        job.anchor_ms,
        job.created_ms,
        job.updated_ms,
        job.trace,
        spec.target.endpoint,
        job.halted,
        _spec(spec).decode() if with_spec else None,
        None if job.payload is None else _base64(job.payload),
    )


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def add_audit(conn: sqlite3.Connection, entry: AuditEntry) -> None:
    detail = as_json(entry.detail)
    conn.execute(SQL.add_audit, (entry.tenant, entry.at_ms, entry.subject, entry.action, entry.target, detail))


def keep_receipt(conn: sqlite3.Connection, receipt: Receipt) -> None:
    try:
        conn.execute(SQL.add_receipt, msgspec.structs.astuple(receipt))
    except sqlite3.IntegrityError:
        raise Conflict("another request with this Idempotency-Key was answered in the meantime") from None
