"""Open the PostgreSQL database and create the drivers of the store's ports."""

from dataclasses import dataclass

from noonday.drivers.postgres.caps import set_caps
from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.executions import PostgresExecutions
from noonday.drivers.postgres.firing import PostgresFiring
from noonday.drivers.postgres.jobs import PostgresJobs
from noonday.drivers.postgres.sessions import PostgresSessions
from noonday.drivers.sql.alerts import SqlAlerts
from noonday.drivers.sql.endpoints import SqlEndpoints
from noonday.drivers.sql.notices import SqlNotices
from noonday.drivers.sql.queries import SqlQueryStore
from noonday.drivers.sql.settings import SqlSettingsStore
from noonday.drivers.sql.workload import SqlWorkload


@dataclass(frozen=True)
class PostgresStore:
    database: PostgresDatabase
    jobs: PostgresJobs
    firing: PostgresFiring
    executions: PostgresExecutions
    query_store: SqlQueryStore
    settings_store: SqlSettingsStore
    workload: SqlWorkload
    endpoints: SqlEndpoints
    alerts: SqlAlerts
    notices: SqlNotices

    async def close(self) -> None:
        await self.database.close()


async def open_store(options: PostgresOptions, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    """Open a database that has been migrated. With `own_clock`, the server's clock decides what is due."""
    return store_of(await PostgresDatabase.open(options), lead_ms, own_clock=own_clock)


def store_of(database: PostgresDatabase, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    sessions = PostgresSessions(database)
    return PostgresStore(
        database,
        PostgresJobs(database),
        PostgresFiring(database, lead_ms, own_clock=own_clock),
        PostgresExecutions(database),
        SqlQueryStore(sessions),
        SqlSettingsStore(sessions, set_caps),
        SqlWorkload(sessions),
        SqlEndpoints(sessions),
        SqlAlerts(sessions),
        SqlNotices(sessions),
    )
