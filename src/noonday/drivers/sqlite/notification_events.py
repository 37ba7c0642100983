"""Store what happened to notifications, and who decided about a dispatch, in SQLite."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import insert_many, rows_by_name
from noonday.model.ids import TenantId
from noonday.model.notifications.notification import (
    DecisionKind,
    DispatchDecision,
    DispatchKey,
    EventKind,
    NotificationEvent,
    NotificationId,
)
from noonday.ports.notifications import NotificationEvents
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "notification_events")
_NEWEST = (2**62, NotificationId(""))
"""A position before every notification of a user."""


class SqliteNotificationEvents(NotificationEvents):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def append(self, events: Sequence[NotificationEvent]) -> None:
        if not events:
            return
        stored = [SQL.values(SQL.add_events, event) for event in events]
        heard = as_json([_heard(event) for event in events])

        def work(conn: sqlite3.Connection) -> None:
            insert_many(conn, SQL.add_events, stored)
            conn.execute(SQL.hear, (heard,))

        await self._database.write(work)

    async def decide(self, decision: DispatchDecision) -> DispatchDecision:
        values, key = (
            SQL.values(SQL.decide, decision),
            _dispatch(decision.tenant, decision.notification_id, decision.number),
        )

        def work(conn: sqlite3.Connection) -> DispatchDecision:
            conn.execute(SQL.decide, values)
            (row,) = rows_by_name(conn, SQL.decisions, as_json([key]))
            return _decision(row)

        return await self._database.write(work)

    async def decisions_of(self, keys: Collection[DispatchKey]) -> Mapping[DispatchKey, DispatchDecision]:
        named = as_json([_dispatch(*key) for key in keys])
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.decisions, named))
        return {(each.tenant, each.notification_id, each.number): each for each in map(_decision, rows)}

    async def events_of(
        self, notifications: Collection[tuple[str, NotificationId]]
    ) -> Mapping[NotificationId, list[NotificationEvent]]:
        named = as_json([{"tenant": tenant, "notification_id": each} for tenant, each in set(notifications)])
        found: dict[NotificationId, list[NotificationEvent]] = {}
        for row in await self._database.read(lambda conn: rows_by_name(conn, SQL.events, named)):
            event = NotificationEvent(**{**row, "kind": EventKind(row["kind"])})
            found.setdefault(event.notification_id, []).append(event)
        return found

    async def of_user(
        self, tenant: TenantId, user_id: str, after: tuple[int, NotificationId] | None, limit: int
    ) -> list[tuple[int, NotificationId]]:
        parameters = (tenant, user_id, *(after or _NEWEST), limit)
        rows = await self._database.query(lambda conn: rows_by_name(conn, SQL.of_user, *parameters))
        return [(row["created_ms"], NotificationId(row["notification_id"])) for row in rows]

    async def prune(self, before_ms: int, limit: int) -> int:
        def work(conn: sqlite3.Connection) -> int:
            oldest = rows_by_name(conn, SQL.oldest, before_ms, limit)
            for query in (SQL.drop_events, SQL.drop_decisions, SQL.drop_notifications):
                conn.execute(query, (as_json(oldest),))
            return len(oldest)

        return await self._database.write(work)


def _heard(event: NotificationEvent) -> dict[str, object]:
    return {"tenant": event.tenant, "notification_id": event.notification_id, "at_ms": event.at_ms}


def _dispatch(tenant: str, notification: NotificationId, number: int) -> dict[str, object]:
    return {"tenant": tenant, "notification_id": notification, "number": number}


def _decision(row: Mapping[str, Any]) -> DispatchDecision:
    return DispatchDecision(**{**row, "kind": DecisionKind(row["kind"])})
