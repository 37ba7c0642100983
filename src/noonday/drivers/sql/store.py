"""The stores of one SQL database."""

from dataclasses import dataclass, fields
from typing import Any, Self

from noonday.drivers.sql.alerts import SqlAlerts
from noonday.drivers.sql.child_jobs import SqlChildJobs
from noonday.drivers.sql.endpoints import SqlEndpoints
from noonday.drivers.sql.execution_search import SqlExecutionSearch
from noonday.drivers.sql.jobs import JobWrites, SqlJobs
from noonday.drivers.sql.notices import SqlNotices
from noonday.drivers.sql.operations import SqlOperations
from noonday.drivers.sql.provider_accounts import SqlProviderAccounts
from noonday.drivers.sql.queries import SqlQueryStore
from noonday.drivers.sql.selection import SqlSelection
from noonday.drivers.sql.sessions import SqlSessions
from noonday.drivers.sql.settings import SetCaps, SqlSettingsStore
from noonday.drivers.sql.users import SqlUsers
from noonday.drivers.sql.workload import SqlWorkload
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing


@dataclass(frozen=True)
class SqlStore:
    """The drivers of the store's ports. Firing and executions have a driver for each database; both share the others."""

    database: Any
    jobs: SqlJobs
    child_jobs: SqlChildJobs
    firing: Firing
    executions: Executions
    query_store: SqlQueryStore
    execution_search: SqlExecutionSearch
    settings_store: SqlSettingsStore
    workload: SqlWorkload
    endpoints: SqlEndpoints
    alerts: SqlAlerts
    notices: SqlNotices
    users: SqlUsers
    provider_accounts: SqlProviderAccounts
    operations: SqlOperations
    selection: SqlSelection

    @classmethod
    def on(
        cls,
        sessions: SqlSessions,
        set_caps: SetCaps,
        job_writes: JobWrites,
        database: Any,
        firing: Firing,
        executions: Executions,
    ) -> Self:
        """Add the drivers that both databases share."""
        jobs = SqlJobs(sessions, job_writes)
        return cls(
            database,
            jobs,
            SqlChildJobs(sessions, job_writes, jobs),
            firing,
            executions,
            SqlQueryStore(sessions),
            SqlExecutionSearch(sessions),
            SqlSettingsStore(sessions, set_caps),
            SqlWorkload(sessions),
            SqlEndpoints(sessions),
            SqlAlerts(sessions),
            SqlNotices(sessions),
            SqlUsers(sessions),
            SqlProviderAccounts(sessions),
            SqlOperations(sessions),
            SqlSelection(sessions),
        )

    @property
    def ports(self) -> dict[str, Any]:
        """The drivers by the names of their fields."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "database"}

    async def close(self) -> None:
        await self.database.close()
