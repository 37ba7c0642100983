"""Open the PostgreSQL database and create the drivers of the store's ports."""

from noonday.drivers.postgres.caps import set_caps
from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.executions import PostgresExecutions
from noonday.drivers.postgres.firing import PostgresFiring
from noonday.drivers.postgres.job_writes import PostgresJobWrites
from noonday.drivers.postgres.sessions import PostgresSessions
from noonday.drivers.sql.store import SqlStore


class PostgresStore(SqlStore):
    database: PostgresDatabase


async def open_store(options: PostgresOptions, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    """Open a database that has been migrated. With `own_clock`, the server's clock decides what is due."""
    return store_of(await PostgresDatabase.open(options), lead_ms, own_clock=own_clock)


def store_of(database: PostgresDatabase, lead_ms: int, *, own_clock: bool = True) -> PostgresStore:
    firing, executions = PostgresFiring(database, lead_ms, own_clock=own_clock), PostgresExecutions(database)
    return PostgresStore.on(PostgresSessions(database), set_caps, PostgresJobWrites(), database, firing, executions)
