"""Open the PostgreSQL database and create the drivers of the store's ports."""

from dataclasses import dataclass

from noonday.drivers.postgres.alerts import PostgresAlerts
from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.endpoints import PostgresEndpoints
from noonday.drivers.postgres.executions import PostgresExecutions
from noonday.drivers.postgres.firing import PostgresFiring
from noonday.drivers.postgres.jobs import PostgresJobs
from noonday.drivers.postgres.notice_rows import PostgresNotices
from noonday.drivers.postgres.queries import PostgresQueryStore
from noonday.drivers.postgres.settings import PostgresSettingsStore
from noonday.drivers.postgres.workload import PostgresWorkload


@dataclass(frozen=True)
class PostgresStore:
    database: PostgresDatabase
    jobs: PostgresJobs
    firing: PostgresFiring
    executions: PostgresExecutions
    query_store: PostgresQueryStore
    settings_store: PostgresSettingsStore
    workload: PostgresWorkload
    endpoints: PostgresEndpoints
    alerts: PostgresAlerts
    notices: PostgresNotices

    async def close(self) -> None:
        await self.database.close()


async def open_store(options: PostgresOptions, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    """Open a database that has been migrated. With `own_clock`, the server's clock decides what is due."""
    return store_of(await PostgresDatabase.open(options), lead_ms, own_clock=own_clock)


def store_of(database: PostgresDatabase, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    return PostgresStore(
        database,
        PostgresJobs(database),
        PostgresFiring(database, lead_ms, own_clock=own_clock),
        PostgresExecutions(database),
        PostgresQueryStore(database),
        PostgresSettingsStore(database),
        PostgresWorkload(database),
        PostgresEndpoints(database),
        PostgresAlerts(database),
        PostgresNotices(database),
    )
