"""Lock and write jobs in PostgreSQL."""

from collections.abc import Sequence
from typing import TypeVar

import asyncpg
from msgspec.structs import astuple

from noonday.drivers.postgres.write_sets import TRIES, columns_of, payload_of, until_unchanged
from noonday.drivers.sql.jobs import JobWrites
from noonday.drivers.sql.named_sql import load
from noonday.drivers.sql.sessions import SqlSession, SqlSessions, Work
from noonday.model.change import NewJob
from noonday.model.errors import NotFound, StoreUnavailable
from noonday.model.ids import JobId, TenantId, is_id
from noonday.transitions.editing import fire_row
from noonday.transitions.rows import JobColumns, TimelineRow, job_columns
from noonday.transitions.write_set import WriteSet, as_json

SQL = load("noonday.drivers.postgres", "job_writes")
T = TypeVar("T")
JOB_COLUMNS = JobColumns.__struct_fields__
FIRE_COLUMNS = TimelineRow.__struct_fields__
COPY_MIN_ROWS = 100
"""Number of jobs from which on COPY is worth its two more round trips. It costs a third of an INSERT."""


class _KeyTaken(Exception):
    """Raised when another transaction has just taken a unique key. The next try edits the job that has it."""


class PostgresJobWrites(JobWrites):
    """Locks what it decides from, in this order: jobs, fire row, dispatch rows and executions."""

    async def transact(self, sessions: SqlSessions, work: Work[T]) -> T:
        for _ in range(TRIES):
            try:
                return await until_unchanged(lambda: sessions.write(work))
            except _KeyTaken:
                continue
        raise StoreUnavailable(f"gave up after {TRIES} write conflicts; retry")

    async def insert(self, session: SqlSession, jobs: Sequence[NewJob]) -> None:
        """Insert jobs in the order of their unique keys. Of two calls that use the same new keys, one waits at the first key."""
        jobs = sorted(jobs, key=lambda new: new.job.spec.unique_key or "")
        rows = [astuple(job_columns(new.job)) for new in jobs]
        fires = [astuple(fire_row(new.job, new.fire)) for new in jobs if new.fire]
        try:
            if len(rows) >= COPY_MIN_ROWS:
                await session.raw.copy_records_to_table("jobs", records=rows, columns=JOB_COLUMNS)
                await session.raw.copy_records_to_table("timeline", records=fires, columns=FIRE_COLUMNS)
            elif rows:
                columns = dict(zip(JOB_COLUMNS, columns_of(rows, JOB_COLUMNS), strict=True))
                for name, column in zip(FIRE_COLUMNS, columns_of(fires, FIRE_COLUMNS), strict=True):
                    columns[f"fire_{name}"] = column
                await session.execute(SQL.add_jobs, *(columns[name] for name in SQL.fields(SQL.add_jobs)))
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != "jobs_unique_key":
                raise
            raise _KeyTaken from error

    async def write(self, session: SqlSession, writes: WriteSet) -> int:
        created: int = await session.value(SQL.write_rows, as_json(payload_of(writes)), writes.now_ms)
        return created

    async def lock_jobs(self, session: SqlSession, tenant: TenantId, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            if not is_id(job):
                raise NotFound(f"no job {job}")
        await session.value(SQL.lock_jobs, tenant, list(jobs))

    async def lock_rows(self, session: SqlSession, ids: Sequence[str]) -> None:
        await session.value(SQL.lock_rows, list(ids))
