"""Create and edit jobs in a SQL database."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import SqlSession, SqlSessions, Work
from noonday.model.audit import AuditEntry
from noonday.model.change import Change, ChangeResult, NewJob
from noonday.model.errors import NotFound
from noonday.model.execution import WATCH_OVERLAP
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job
from noonday.model.pause import DueResume
from noonday.model.receipt import Receipt
from noonday.model.snapshot import ReadExecutions, Scope, Snapshot, SnapshotIncomplete
from noonday.ports.jobs import Decide, Jobs, Upsert
from noonday.transitions.editing import MAX_READS, Edit, require_named_executions, too_many_reads
from noonday.transitions.rows import JobColumns, job_columns, watch_of
from noonday.transitions.write_set import WriteSet

T = TypeVar("T")


class JobWrites(ABC):
    """Locks and writes of jobs, for which each database has its own way."""

    async def transact(self, sessions: SqlSessions, work: Work[T]) -> T:
        """Run work in a transaction."""
        return await sessions.write(work)

    @abstractmethod
    async def lock_jobs(self, session: SqlSession, tenant: TenantId, jobs: Sequence[JobId]) -> None:
        """Lock the rows of jobs, in the order of their ids."""

    @abstractmethod
    async def lock_rows(self, session: SqlSession, ids: Sequence[str]) -> None:
        """Lock the fire row of a job, executions and their dispatch rows, which are given by their ids."""

    def stored(self, row: JobColumns) -> JobColumns:
        """Return the row of a job with its payload as the database stores it."""
        return row

    def stored_payload(self, payload: bytes) -> bytes | str:
        """Return a payload as the database stores it."""
        return payload

    def loaded(self, stored: Any) -> bytes:
        """Return a ciphertext that was read from the database."""
        return bytes(stored)

    @abstractmethod
    async def insert(self, session: SqlSession, jobs: Sequence[NewJob]) -> None:
        """Insert jobs and their fire rows."""

    @abstractmethod
    async def write(self, session: SqlSession, writes: WriteSet) -> int:
        """Write a write set. Returns how many executions are new."""


class SqlJobs(Jobs):
    def __init__(self, sessions: SqlSessions, writes: JobWrites) -> None:
        self._sessions = sessions
        self._writes = writes
        self._sql = sessions.statements("jobs")
        self._audit = AuditLog(sessions)

    async def add(
        self,
        jobs: Sequence[NewJob],
        *,
        upsert: Upsert,
        audit: AuditEntry | None,
        seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
    ) -> list[ChangeResult | None]:
        async def work(session: SqlSession) -> list[ChangeResult | None]:
            answers = await self.add_in(session, jobs, upsert)
            await self._audit.add(session, audit, seal(answers) if seal else None)
            return answers

        return await self._writes.transact(self._sessions, work)

    async def add_in(self, session: SqlSession, jobs: Sequence[NewJob], upsert: Upsert) -> list[ChangeResult | None]:
        """Store new jobs as `add` does, in the transaction of a session."""
        answers: list[ChangeResult | None] = [None] * len(jobs)
        await self._writes.insert(session, await self._without_taken_keys(session, jobs, upsert, answers))
        return answers

    async def edit(
        self,
        tenant: TenantId,
        job_id: JobId,
        decide: Decide,
        *,
        show: Sequence[ExecutionId] = (),
        seal: Callable[[ChangeResult], Receipt] | None = None,
    ) -> ChangeResult:
        async def work(session: SqlSession) -> ChangeResult:
            applied = await self._edit(session, tenant, job_id, decide, show)
            await self._audit.add(session, None, seal(applied) if seal else None)
            return applied

        return await self._writes.transact(self._sessions, work)

    async def keep_receipt(self, receipt: Receipt) -> None:
        await self._sessions.write(lambda session: self._audit.add(session, None, receipt))

    async def next_resume_ms(self) -> int | None:
        row = await self._sessions.row(self._sql.next_resume)
        return row["at_ms"] if row else None

    async def due_resumes(self, now_ms: int, per_tenant: int, limit: int) -> list[DueResume]:
        rows = await self._sessions.fetch(self._sql.due_resumes, now_ms, per_tenant, limit)
        return [DueResume(row["tenant"], JobId(row["id"]), row["paused_until_ms"]) for row in rows]

    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None:
        row = await self._sessions.row(self._sql.receipt, tenant, key)
        return Receipt(**row) if row else None

    async def _without_taken_keys(
        self, session: SqlSession, jobs: Sequence[NewJob], upsert: Upsert, answers: list[ChangeResult | None]
    ) -> Sequence[NewJob]:
        """Return the jobs that are new. A job whose unique key is taken edits the job that has the key instead."""
        keyed = [new for new in jobs if new.job.spec.unique_key is not None]
        if not keyed:
            return jobs
        tenant = keyed[0].job.tenant
        keys = [new.job.spec.unique_key for new in keyed]
        taken = {row["unique_key"]: row["id"] for row in await session.fetch(self._sql.unique_keys, tenant, keys)}
        if len(taken) > 1:
            await self._writes.lock_jobs(session, tenant, list(taken.values()))
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
        await self._writes.insert(session, fresh)
        for index, new, owner in owned:
            answers[index] = await self._edit(session, tenant, owner, _upserting(upsert, new.job), ())
        return ()

    async def _edit(
        self, session: SqlSession, tenant: TenantId, job_id: JobId, decide: Decide, show: Sequence[ExecutionId]
    ) -> ChangeResult:
        """Edit a job under the locks of its row, its fire row, and the dispatch rows and executions that it reads."""
        await self._writes.lock_jobs(session, tenant, [job_id])
        await self._writes.lock_rows(session, [job_id, *show])
        named = ReadExecutions(ids=frozenset(show))
        before, change = await self._decide(session, await self._snapshot(session, tenant, job_id, named), decide)
        edit = Edit(before, change, await self._existing(session, [new.id for new in change.executions]))
        if change.job:
            await self._set_job(session, edit)
        created = await self._writes.write(session, edit.writes)
        await self._set_payloads(session, edit)
        if change.dead:
            dead, retried_as = zip(*change.dead, strict=True)
            await session.execute(self._sql.resolve_dead, list(dead), list(retried_as), edit.writes.now_ms)
        await self._audit.add(session, change.audit)
        after = await self._snapshot(session, tenant, job_id, named)
        return ChangeResult(
            after, tuple(edit.writes.entries), tuple(edit.writes.revocations), edit.fenced_pools, created
        )

    async def _decide(self, session: SqlSession, before: Snapshot, decide: Decide) -> tuple[Snapshot, Change]:
        """Decide, and read more executions as long as the decision needs them."""
        for _ in range(MAX_READS):
            try:
                change = decide(before)
                require_named_executions(before, change)
            except SnapshotIncomplete as unread:
                before = await self._read_more(session, before, unread)
            else:
                return before, change
        raise too_many_reads(before.job)

    async def _read_more(self, session: SqlSession, before: Snapshot, unread: SnapshotIncomplete) -> Snapshot:
        job, read = before.job, before.read
        assert read is not None
        if unread.exist:
            # Under the locks of the job and its fire row, no other transaction can create or delete an execution.
            existing = await self._existing(session, unread.exist)
            return msgspec.structs.replace(before, read=read.with_existing(unread.exist, existing))
        rows = await session.fetch(self._ids_in(unread.scope, job), job.id) if unread.scope else []
        ids = {ExecutionId(row["id"]) for row in rows}.union(unread.ids)
        await self._writes.lock_rows(session, list(ids))
        return await self._snapshot(session, job.tenant, job.id, read.reaching(unread.scope, ids))

    def _ids_in(self, scope: Scope, job: Job) -> str:
        """Return the query for the ids in a scope. A job that allows overlap buffers nothing."""
        is_unbuffered = scope is Scope.UNBUFFERED and watch_of(job.spec) & WATCH_OVERLAP
        return self._sql.unbuffered_ids if is_unbuffered else self._sql.open_ids

    async def _snapshot(self, session: SqlSession, tenant: TenantId, job_id: JobId, read: ReadExecutions) -> Snapshot:
        ids = sorted(read.ids)
        found: Snapshot | None = await session.decode(Snapshot, self._sql.snapshot, tenant, job_id, ids, len(ids) + 1)
        if found is None:
            raise NotFound(f"no job {job_id}")
        return msgspec.structs.replace(found, read=read)

    async def _existing(self, session: SqlSession, ids: Sequence[ExecutionId]) -> set[ExecutionId]:
        if not ids:
            return set()
        return {ExecutionId(row["id"]) for row in await session.fetch(self._sql.existing, list(ids))}

    async def _set_payloads(self, session: SqlSession, edit: Edit) -> None:
        """Store the payloads of new executions that do not run with that of their job."""
        for new in edit.created:
            if new.payload is not None:
                await session.execute(self._sql.set_payload, new.id, self._writes.stored_payload(new.payload))
        retried = [new.id for new in edit.created if new.retry_of is not None]
        if retried:
            await session.execute(self._sql.copy_payloads, retried)

    async def _set_job(self, session: SqlSession, edit: Edit) -> None:
        job = edit.job
        if edit.new_revision:
            await session.execute(self._sql.keep_revision, job.tenant, job.id)
        # Unless the edit changes the spec, fields that only a newer version knows are kept.
        columns = job_columns(job, with_spec=job.spec != edit.before.job.spec)
        await session.execute(self._sql.set_job, *self._sql.values(self._sql.set_job, self._writes.stored(columns)))
        if edit.added_watch:
            await session.execute(self._sql.watch_open, edit.added_watch, job.id)


def _upserting(upsert: Upsert, job: Job) -> Decide:
    return lambda before: upsert(before, job)
