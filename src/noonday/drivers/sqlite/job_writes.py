"""Lock and write jobs in SQLite."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from noonday.drivers.sql.jobs import JobWrites
from noonday.drivers.sql.named_sql import load
from noonday.drivers.sql.sessions import SqlSession
from noonday.drivers.sqlite.write_sets import insert_many, write
from noonday.model.change import NewJob
from noonday.model.ids import JobId, TenantId
from noonday.transitions.editing import fire_row
from noonday.transitions.rows import JobColumns, job_columns
from noonday.transitions.write_set import WriteSet

SQL = load("noonday.drivers.sqlite", "job_writes")


class SqliteJobWrites(JobWrites):
    async def lock_jobs(self, session: SqlSession, tenant: TenantId, jobs: Sequence[JobId]) -> None:
        """Do nothing: there is one writer."""

    async def lock_rows(self, session: SqlSession, ids: Sequence[str]) -> None:
        """Do nothing: there is one writer."""

    async def insert(self, session: SqlSession, jobs: Sequence[NewJob]) -> None:
        rows = [SQL.values(SQL.add_jobs, self.stored(job_columns(new.job))) for new in jobs]
        insert_many(session.raw, SQL.add_jobs, rows)
        fires = [SQL.values(SQL.add_fires, fire_row(new.job, new.fire)) for new in jobs if new.fire]
        insert_many(session.raw, SQL.add_fires, fires)

    async def write(self, session: SqlSession, writes: WriteSet) -> int:
        return write(session.raw, writes)

    def stored(self, row: JobColumns) -> JobColumns:
        """Encode the payload, which is stored as base64."""
        return row if row.payload is None else msgspec.structs.replace(row, payload=self.stored_payload(row.payload))

    def stored_payload(self, payload: bytes) -> Any:
        return b64encode(payload).decode()

    def loaded(self, stored: Any) -> bytes:
        return b64decode(stored)
