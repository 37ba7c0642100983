"""Opens the database and hands out the drivers of the store's ports."""

from dataclasses import dataclass

from noonday.drivers.postgres.alerts import PostgresAlerts
from noonday.drivers.postgres.archive import PostgresArchive
from noonday.drivers.postgres.connection import Database, PostgresOptions
from noonday.drivers.postgres.endpoints import PostgresEndpoints
from noonday.drivers.postgres.executions import PostgresExecutions
from noonday.drivers.postgres.firing import PostgresFiring
from noonday.drivers.postgres.jobs import PostgresJobs
from noonday.drivers.postgres.notice_rows import PostgresNotices


@dataclass(frozen=True)
class Store:
    database: Database
    jobs: PostgresJobs
    firing: PostgresFiring
    executions: PostgresExecutions
    archive: PostgresArchive
    endpoints: PostgresEndpoints
    alerts: PostgresAlerts
    notices: PostgresNotices

    async def close(self) -> None:
        await self.database.close()


async def open_store(options: PostgresOptions, lead_ms: int, *, own_clock: bool = True) -> Store:
    """Of a database that has been migrated. With `own_clock` it is the server's clock that says what is due."""
    return store_of(await Database.open(options), lead_ms, own_clock=own_clock)


def store_of(database: Database, lead_ms: int, *, own_clock: bool = True) -> Store:
    return Store(
        database,
        PostgresJobs(database),
        PostgresFiring(database, lead_ms, own_clock=own_clock),
        PostgresExecutions(database),
        PostgresArchive(database),
        PostgresEndpoints(database),
        PostgresAlerts(database),
        PostgresNotices(database),
    )
