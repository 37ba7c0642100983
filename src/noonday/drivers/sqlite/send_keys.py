"""Keys that name a send, in SQLite."""

import sqlite3

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import rows_by_name
from noonday.model.notifications.notification import NotificationId
from noonday.model.notifications.send_keys import HELD_MS, HeldKey, KeyTake, judge_take
from noonday.ports.notifications import SendKeys

SQL = load("noonday.drivers.sqlite", "send_keys")


class SqliteSendKeys(SendKeys):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def take(self, tenant: str, key: str, notification: NotificationId, number: int, now_ms: int) -> KeyTake:
        def work(conn: sqlite3.Connection) -> KeyTake:
            take = judge_take(_held(conn, tenant, key), notification, number, now_ms)
            if take is KeyTake.TAKEN:
                conn.execute(SQL.take, (tenant, key, notification, number, now_ms + HELD_MS))
            return take

        return await self._database.write(work)

    async def holder(self, tenant: str, key: str) -> NotificationId | None:
        held = await self._database.read(lambda conn: _held(conn, tenant, key))
        return held.notification_id if held is not None and not held.sent else None

    async def sent(self, tenant: str, key: str, notification: NotificationId, until_ms: int) -> None:
        await self._database.write(lambda conn: conn.execute(SQL.sent, (tenant, key, notification, until_ms)))

    async def release(self, tenant: str, key: str, notification: NotificationId, number: int) -> None:
        await self._database.write(lambda conn: conn.execute(SQL.release, (tenant, key, notification, number)))

    async def prune(self, now_ms: int, limit: int) -> int:
        return await self._database.write(lambda conn: conn.execute(SQL.drop_ended, (now_ms, limit)).rowcount)


def _held(conn: sqlite3.Connection, tenant: str, key: str) -> HeldKey | None:
    rows = rows_by_name(conn, SQL.held, tenant, key)
    return HeldKey(**{**rows[0], "sent": bool(rows[0]["sent"])}) if rows else None
