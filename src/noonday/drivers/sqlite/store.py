"""Open the SQLite file and create the drivers of the store's ports."""

import sqlite3

from noonday.drivers.sql.store import SqlStore
from noonday.drivers.sqlite.caps import set_caps
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase, SqliteDatabase, ThreadedDatabase
from noonday.drivers.sqlite.executions import SqliteExecutions
from noonday.drivers.sqlite.firing import SqliteFiring
from noonday.drivers.sqlite.job_writes import SqliteJobWrites
from noonday.drivers.sqlite.migrations import fill_in_memory, migrate
from noonday.drivers.sqlite.notification_events import SqliteNotificationEvents
from noonday.drivers.sqlite.scheduled_notifications import SqliteScheduledNotifications
from noonday.drivers.sqlite.send_keys import SqliteSendKeys
from noonday.drivers.sqlite.sessions import SqliteSessions


class SqliteStore(SqlStore):
    """The drivers of the store's ports, and those of notifications, which have stores of their own in a cluster."""

    database: SqliteDatabase

    @property
    def scheduled_notifications(self) -> SqliteScheduledNotifications:
        return SqliteScheduledNotifications(self.database)

    @property
    def notification_events(self) -> SqliteNotificationEvents:
        return SqliteNotificationEvents(self.database)

    @property
    def send_keys(self) -> SqliteSendKeys:
        return SqliteSendKeys(self.database)


def store_on(database: SqliteDatabase, lead_ms: int) -> SqliteStore:
    firing, executions = SqliteFiring(database, lead_ms), SqliteExecutions(database)
    return SqliteStore.on(SqliteSessions(database), set_caps, SqliteJobWrites(), database, firing, executions)


def open_store(path: str, options: FileOptions, lead_ms: int) -> SqliteStore:
    """Open and migrate the file. `:memory:` keeps all data in this process, for tests."""
    kind = InlineDatabase if path == MEMORY else ThreadedDatabase
    return store_on(kind(path, options, prepare), lead_ms)


def prepare(conn: sqlite3.Connection) -> None:
    """Bring the schema of a database up to date."""
    is_in_memory = conn.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0] == ""
    is_empty = conn.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
    if is_in_memory and is_empty:
        fill_in_memory(conn)
    else:
        migrate(conn)
