"""Create and edit jobs in SQLite."""

import sqlite3
from base64 import b64encode
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import asdict, astuple

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import executions_of, insert_many, rows_by_name, structs_of, write
from noonday.model.audit import AuditEntry
from noonday.model.change import Change, ChangeResult, NewJob
from noonday.model.errors import Conflict, NotFound
from noonday.model.execution import WATCH_OVERLAP
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job
from noonday.model.receipt import Receipt
from noonday.model.snapshot import ReadExecutions, Scope, Snapshot, SnapshotIncomplete
from noonday.model.stored import StoredDecoder
from noonday.ports.jobs import Decide, Jobs, Upsert
from noonday.transitions.editing import MAX_READS, Edit, fire_row, require_named_executions, too_many_reads
from noonday.transitions.rows import JobColumns, job_columns, watch_of
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "jobs")
_job = StoredDecoder(Job)


class SqliteJobs(Jobs):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def add(
        self,
        jobs: Sequence[NewJob],
        *,
        upsert: Upsert,
        audit: AuditEntry | None,
        seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
    ) -> list[ChangeResult | None]:
        return await self._database.write(lambda conn: _add(conn, jobs, upsert, audit, seal))

    async def edit(
        self,
        tenant: TenantId,
        job_id: JobId,
        decide: Decide,
        *,
        show: Sequence[ExecutionId] = (),
        seal: Callable[[ChangeResult], Receipt] | None = None,
    ) -> ChangeResult:
        def work(conn: sqlite3.Connection) -> ChangeResult:
            applied = _edit(conn, tenant, job_id, decide, show)
            if seal:
                keep_receipt(conn, seal(applied))
            return applied

        return await self._database.write(work)

    async def keep_receipt(self, receipt: Receipt) -> None:
        await self._database.write(lambda conn: keep_receipt(conn, receipt))

    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None:
        rows = await self._database.read(lambda conn: structs_of(Receipt, conn.execute(SQL.receipt, (tenant, key))))
        return rows[0] if rows else None


def _add(
    conn: sqlite3.Connection,
    jobs: Sequence[NewJob],
    upsert: Upsert,
    audit: AuditEntry | None,
    seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
) -> list[ChangeResult | None]:
    answers: list[ChangeResult | None] = [None] * len(jobs)
    _insert(conn, _without_taken_keys(conn, jobs, upsert, answers))
    if audit:
        add_audit(conn, audit)
    if seal:
        keep_receipt(conn, seal(answers))
    return answers


def _insert(conn: sqlite3.Connection, jobs: Sequence[NewJob]) -> None:
    insert_many(conn, SQL.add_jobs, [astuple(_stored(job_columns(new.job))) for new in jobs])
    insert_many(conn, SQL.add_fires, [astuple(fire_row(new.job, new.fire)) for new in jobs if new.fire])


def _without_taken_keys(
    conn: sqlite3.Connection, jobs: Sequence[NewJob], upsert: Upsert, answers: list[ChangeResult | None]
) -> list[NewJob]:
    """Return the jobs that are new. A job whose unique key is taken edits the job that has the key instead."""
    keyed = [new for new in jobs if new.job.spec.unique_key is not None]
    if not keyed:
        return list(jobs)
    tenant = keyed[0].job.tenant
    keys = as_json([new.job.spec.unique_key for new in keyed])
    taken = {row["unique_key"]: row["id"] for row in rows_by_name(conn, SQL.unique_keys, tenant, keys)}
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
) -> ChangeResult:
    before, change = _decide(conn, _snapshot(conn, tenant, job_id, ReadExecutions(ids=frozenset(show))), decide)
    edit = Edit(before, change, _existing(conn, [new.id for new in change.executions]))
    if change.job:
        _set_job(conn, edit)
    created = write(conn, edit.writes)
    if change.dead:
        conn.execute(SQL.resolve_dead, (as_json(change.dead), edit.writes.now_ms))
    if change.audit:
        add_audit(conn, change.audit)
    after = _snapshot(conn, tenant, job_id, ReadExecutions(ids=frozenset(show)))
    return ChangeResult(after, tuple(edit.writes.entries), tuple(edit.writes.revocations), edit.fenced_pools, created)


def _set_job(conn: sqlite3.Connection, edit: Edit) -> None:
    job = edit.job
    if edit.new_revision:
        conn.execute(SQL.keep_revision, (job.tenant, job.id))
    # Unless the edit changes the spec, fields that only a newer version knows are kept.
    conn.execute(SQL.set_job, asdict(_stored(job_columns(job, with_spec=job.spec != edit.before.job.spec))))
    if edit.added_watch:
        conn.execute(SQL.watch_open, (edit.added_watch, job.id))


def _existing(conn: sqlite3.Connection, ids: Sequence[ExecutionId]) -> set[ExecutionId]:
    if not ids:
        return set()
    return {ExecutionId(row["id"]) for row in rows_by_name(conn, SQL.existing, as_json(ids))}


def _decide(conn: sqlite3.Connection, before: Snapshot, decide: Decide) -> tuple[Snapshot, Change]:
    """Decide, and read more executions as long as the decision needs them."""
    for _ in range(MAX_READS):
        try:
            change = decide(before)
            require_named_executions(before, change)
        except SnapshotIncomplete as unread:
            before = _read_more(conn, before, unread)
        else:
            return before, change
    raise too_many_reads(before.job)


def _read_more(conn: sqlite3.Connection, before: Snapshot, unread: SnapshotIncomplete) -> Snapshot:
    job, read = before.job, before.read
    assert read is not None
    if unread.exist:
        return msgspec.structs.replace(before, read=read.with_existing(unread.exist, _existing(conn, unread.exist)))
    rows = rows_by_name(conn, _ids_in(unread.scope, job), job.id) if unread.scope else []
    ids = {ExecutionId(row["id"]) for row in rows}
    return _snapshot(conn, job.tenant, job.id, read.reaching(unread.scope, ids.union(unread.ids)))


def _ids_in(scope: Scope, job: Job) -> str:
    """Return the query for the ids in a scope. A job that allows overlap buffers nothing."""
    return SQL.unbuffered_ids if scope is Scope.UNBUFFERED and watch_of(job.spec) & WATCH_OVERLAP else SQL.open_ids


def _snapshot(conn: sqlite3.Connection, tenant: TenantId, job_id: JobId, read: ReadExecutions) -> Snapshot:
    row = conn.execute(SQL.job, (tenant, job_id)).fetchone()
    if row is None:
        raise NotFound(f"no job {job_id}")
    fires = structs_of(Fire, conn.execute(SQL.fire, (job_id,)))
    executions = executions_of(conn, SQL.executions, job_id, as_json(sorted(read.ids)), len(read.ids) + 1)
    return Snapshot(_job.decode(row[0]), fires[0] if fires else None, tuple(executions), read)


def _stored(row: JobColumns) -> JobColumns:
    """Encode the payload, which is stored as base64."""
    return row if row.payload is None else msgspec.structs.replace(row, payload=_base64(row.payload))


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def add_audit(conn: sqlite3.Connection, entry: AuditEntry) -> None:
    detail = as_json(entry.detail)
    conn.execute(SQL.add_audit, (entry.tenant, entry.at_ms, entry.subject, entry.action, entry.target, detail))


def keep_receipt(conn: sqlite3.Connection, receipt: Receipt) -> None:
    try:
        conn.execute(SQL.add_receipt, astuple(receipt))
    except sqlite3.IntegrityError:
        raise Conflict("another request with this Idempotency-Key was answered in the meantime") from None
