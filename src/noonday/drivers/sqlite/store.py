"""Open the SQLite file and create the drivers of the store's ports."""

import sqlite3
from dataclasses import dataclass

from noonday.drivers.sql.alerts import SqlAlerts
from noonday.drivers.sql.endpoints import SqlEndpoints
from noonday.drivers.sql.notices import SqlNotices
from noonday.drivers.sql.queries import SqlQueryStore
from noonday.drivers.sql.settings import SqlSettingsStore
from noonday.drivers.sql.workload import SqlWorkload
from noonday.drivers.sqlite.caps import set_caps
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase, SqliteDatabase, ThreadedDatabase
from noonday.drivers.sqlite.executions import SqliteExecutions
from noonday.drivers.sqlite.firing import SqliteFiring
from noonday.drivers.sqlite.jobs import SqliteJobs
from noonday.drivers.sqlite.migrations import migrate
from noonday.drivers.sqlite.sessions import SqliteSessions


@dataclass(frozen=True)
class SqliteStore:
    database: SqliteDatabase
    jobs: SqliteJobs
    firing: SqliteFiring
    executions: SqliteExecutions
    query_store: SqlQueryStore
    settings_store: SqlSettingsStore
    workload: SqlWorkload
    endpoints: SqlEndpoints
    alerts: SqlAlerts
    notices: SqlNotices

    async def close(self) -> None:
        await self.database.close()


def store_on(database: SqliteDatabase, lead_ms: int) -> SqliteStore:
    sessions = SqliteSessions(database)
    return SqliteStore(
        database,
        SqliteJobs(database),
        SqliteFiring(database, lead_ms),
        SqliteExecutions(database),
        SqlQueryStore(sessions),
        SqlSettingsStore(sessions, set_caps),
        SqlWorkload(sessions),
        SqlEndpoints(sessions),
        SqlAlerts(sessions),
        SqlNotices(sessions),
    )


def open_store(path: str, options: FileOptions, lead_ms: int) -> SqliteStore:
    """Open and migrate the file. `:memory:` keeps all data in this process, for tests."""
    kind = InlineDatabase if path == MEMORY else ThreadedDatabase
    return store_on(kind(path, options, prepare), lead_ms)


def prepare(conn: sqlite3.Connection) -> None:
    migrate(conn)
