"""Store alerts and find late work in SQLite."""

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.jobs import add_audit, keep_receipt
from noonday.model.alert import (
    Alert,
    AlertEvent,
    AlertFilter,
    AlertKind,
    Kept,
    Late,
    Observation,
    Slow,
    events_of,
    raised_by,
    recoveries,
)
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.receipt import Receipt
from noonday.ports.alerts import Alerts
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "alerts")
LAST_ID = "~"
"""Sorts after every id."""


class SqliteAlerts(Alerts):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def take_in(self, observations: Sequence[Observation]) -> int:
        return await self._database.write(lambda conn: _take_in(conn, observations))

    async def events(self, limit: int) -> list[AlertEvent]:
        rows = await self._database.read(lambda conn: conn.execute(SQL.alert_events, (limit,)).fetchall())
        return [_alert_event(*row) for row in rows]

    async def recover(self, after: str, limit: int, now_ms: int) -> tuple[str | None, int]:
        rows = await self._database.read(lambda conn: conn.execute(SQL.unrecovered, (after, limit)).fetchall())
        ended = [alert for alert, succeeded in rows if succeeded]
        jobs = await self._database.write(lambda conn: _recover(conn, ended, now_ms)) if ended else 0
        return (rows[-1][0] if len(rows) == limit else None), jobs

    async def late(self, after: tuple[int, str], due_before_ms: int, limit: int) -> list[Late]:
        where = (*after, due_before_ms, limit)
        rows = await self._database.read(lambda conn: conn.execute(SQL.late, where).fetchall())
        return [_late(*row) for row in rows]

    async def stranded(self, after: str, fired_before_ms: int, limit: int) -> tuple[str | None, list[Late]]:
        where = (after, fired_before_ms, limit)
        rows = await self._database.read(lambda conn: conn.execute(SQL.stranded, where).fetchall())
        return (rows[-1][4] if len(rows) == limit else None), [_stranded(*row[:6]) for row in rows if row[6]]

    async def slow(self, after: str, started_before_ms: int, limit: int) -> list[Slow]:
        where = (after, started_before_ms, limit)
        rows = await self._database.read(lambda conn: conn.execute(SQL.slow, where).fetchall())
        return [Slow(*row[:-1], *json.loads(row[-1])) for row in rows]

    async def list_alerts(self, tenant: TenantId, where: AlertFilter, after: str | None, limit: int) -> list[Alert]:
        parameters = [tenant, after or LAST_ID, where.unread, where.kind, where.until_ms, limit]
        query = SQL.unread_alerts if where.unread else SQL.alerts
        if where.job_id is not None:
            query = SQL.alerts_of_job
            parameters.append(where.job_id)
        rows = await self._database.read(lambda conn: conn.execute(query, parameters).fetchall())
        return [_alert(row) for row in rows]

    async def count_unread(self, tenant: TenantId, most: int) -> int:
        (count,) = await self._database.read(lambda conn: conn.execute(SQL.count_unread, (tenant, most)).fetchone())
        return int(count)

    async def find_alert(self, tenant: TenantId, alert: str) -> Alert | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.alert, (tenant, alert)).fetchone())
        return _alert(row) if row is not None else None

    async def acknowledge(
        self, tenant: TenantId, alerts: Collection[str], now_ms: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> int:
        def work(conn: sqlite3.Connection) -> int:
            parameters = (tenant, as_json(list(alerts)), now_ms, audit.subject)
            count = conn.execute(SQL.acknowledge, parameters).rowcount
            add_audit(conn, audit)
            if receipt:
                keep_receipt(conn, receipt)
            return count

        return await self._database.write(work)

    async def prune(self, before_ms: int, limit: int) -> int:
        return await self._database.write(lambda conn: conn.execute(SQL.prune_alerts, (before_ms, limit)).rowcount)


def _take_in(conn: sqlite3.Connection, observations: Sequence[Observation]) -> int:
    incidents = [each.incident for each in observations if each.incident is not None]
    taken = {row[0] for row in conn.execute(SQL.take_incidents, (as_json(incidents),))} if incidents else set()
    accepted = [each for each in observations if each.incident is None or each.incident in taken]
    raised = raised_by(accepted)
    rows = as_json([msgspec.structs.astuple(each) for each in raised])
    kept = [Kept(*row) for row in conn.execute(SQL.raise_alerts, (rows,)).fetchall()]
    _add_events(conn, events_of(accepted, raised, kept))
    return len({each.id for each in raised} & {each.id for each in kept})


def _recover(conn: sqlite3.Connection, alerts: Sequence[str], now_ms: int) -> int:
    ended = [_alert(row) for row in conn.execute(SQL.recover, (as_json(alerts), now_ms)).fetchall()]
    events = recoveries(ended, now_ms)
    _add_events(conn, events)
    return len(events)


def _add_events(conn: sqlite3.Connection, events: Sequence[AlertEvent]) -> None:
    if events:
        conn.execute(SQL.add_alert_events, (as_json([msgspec.structs.astuple(each)[1:] for each in events]),))


def _alert_event(number: int, tenant: str, alert: str, kind: str, *rest: Any) -> AlertEvent:
    return AlertEvent(number, tenant, alert, AlertKind(kind), *rest)


def _late(due_ms: int, key: str, tenant: TenantId, pool: str, job: str, execution: str, early: int) -> Late:
    return Late(due_ms, key, tenant, pool, job, execution, bool(early))


def _stranded(due_ms: int, key: str, tenant: TenantId, pool: str, job: str, execution: str) -> Late:
    return Late(due_ms, key, tenant, pool, job, execution, early=True, handed_out=True)


def _alert(row: sqlite3.Row) -> Alert:
    name, tenant, kind, *rest = row
    return Alert(name, tenant, AlertKind(kind), *rest)
