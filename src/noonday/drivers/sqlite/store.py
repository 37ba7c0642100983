"""Open the SQLite file and create the drivers of the store's ports."""

import sqlite3
from dataclasses import dataclass

from noonday.drivers.sqlite.alerts import SqliteAlerts
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase, SqliteDatabase, ThreadedDatabase
from noonday.drivers.sqlite.endpoints import SqliteEndpoints
from noonday.drivers.sqlite.executions import SqliteExecutions
from noonday.drivers.sqlite.firing import SqliteFiring
from noonday.drivers.sqlite.jobs import SqliteJobs
from noonday.drivers.sqlite.migrations import migrate
from noonday.drivers.sqlite.notice_rows import SqliteNotices
from noonday.drivers.sqlite.queries import SqliteQueryStore
from noonday.drivers.sqlite.settings import SqliteSettingsStore
from noonday.drivers.sqlite.workload import SqliteWorkload


@dataclass(frozen=True)
class SqliteStore:
    database: SqliteDatabase
    jobs: SqliteJobs
    firing: SqliteFiring
    executions: SqliteExecutions
    query_store: SqliteQueryStore
    settings_store: SqliteSettingsStore
    workload: SqliteWorkload
    endpoints: SqliteEndpoints
    alerts: SqliteAlerts
    notices: SqliteNotices

    async def close(self) -> None:
        await self.database.close()


def store_on(database: SqliteDatabase, lead_ms: int) -> SqliteStore:
    return SqliteStore(
        database,
        SqliteJobs(database),
        SqliteFiring(database, lead_ms),
        SqliteExecutions(database),
        SqliteQueryStore(database),
        SqliteSettingsStore(database),
        SqliteWorkload(database),
        SqliteEndpoints(database),
        SqliteAlerts(database),
        SqliteNotices(database),
    )


def open_store(path: str, options: FileOptions, lead_ms: int) -> SqliteStore:
    """Open and migrate the file. `:memory:` keeps all data in this process, for tests."""
    kind = InlineDatabase if path == MEMORY else ThreadedDatabase
    return store_on(kind(path, options, prepare), lead_ms)


def prepare(conn: sqlite3.Connection) -> None:
    migrate(conn)
