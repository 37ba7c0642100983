"""Open the PostgreSQL database and create the drivers of the store's ports."""

from noonday.drivers.postgres.caps import set_caps
from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.executions import PostgresExecutions
from noonday.drivers.postgres.firing import PostgresFiring
from noonday.drivers.postgres.jobs import PostgresJobs
from noonday.drivers.postgres.sessions import PostgresSessions
from noonday.drivers.sql.store import SqlStore


class PostgresStore(SqlStore):
    database: PostgresDatabase


async def open_store(options: PostgresOptions, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    """Open a database that has been migrated. With `own_clock`, the server's clock decides what is due."""
    return store_of(await PostgresDatabase.open(options), lead_ms, own_clock=own_clock)


def store_of(database: PostgresDatabase, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    jobs, executions = PostgresJobs(database), PostgresExecutions(database)
    firing = PostgresFiring(database, lead_ms, own_clock=own_clock)
    return PostgresStore.on(PostgresSessions(database), set_caps, database, jobs, firing, executions)
