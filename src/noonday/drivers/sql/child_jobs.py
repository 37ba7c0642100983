"""List and create the jobs that handlers have enqueued, in a SQL database."""

from collections.abc import Sequence

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.jobs import JobWrites, SqlJobs
from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.audit import AuditEntry
from noonday.model.change import ChangeResult, NewJob
from noonday.model.child_job import WaitingChildren
from noonday.model.ids import TenantId
from noonday.ports.child_jobs import ChildJobs
from noonday.ports.jobs import Upsert


class SqlChildJobs(ChildJobs):
    def __init__(self, sessions: SqlSessions, writes: JobWrites, jobs: SqlJobs) -> None:
        self._sessions = sessions
        self._writes = writes
        self._jobs = jobs
        self._sql = sessions.statements("child_jobs")
        self._audit = AuditLog(sessions)

    async def tenants(self, after: TenantId | None, limit: int) -> list[TenantId]:
        rows = await self._sessions.fetch(self._sql.tenants, after or "", limit)
        return [TenantId(row["tenant"]) for row in rows]

    async def waiting(self, tenant: TenantId, limit: int) -> list[WaitingChildren]:
        rows = await self._sessions.fetch(self._sql.waiting, tenant, limit)
        return [WaitingChildren(**{**row, "children": self._writes.loaded(row["children"])}) for row in rows]

    async def create(
        self, waiting: WaitingChildren, jobs: Sequence[NewJob], *, upsert: Upsert, audit: AuditEntry | None
    ) -> list[ChangeResult] | None:
        async def work(session: SqlSession) -> list[ChangeResult] | None:
            key = (waiting.tenant, waiting.execution_id, waiting.dispatch)
            if await session.row(self._sql.take, *key) is None:
                return None
            ids = [new.job.id for new in jobs]
            present = {row["id"] for row in await session.fetch(self._sql.existing, waiting.tenant, ids)}
            missing = [new for new in jobs if new.job.id not in present]
            answers = await self._jobs.add_in(session, missing, upsert)
            await self._audit.add(session, audit if missing else None)
            return [answer for answer in answers if answer is not None]

        return await self._writes.transact(self._sessions, work)
