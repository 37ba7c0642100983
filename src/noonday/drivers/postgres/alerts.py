"""Store alerts and find late work in PostgreSQL."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.jobs import add_audit, keep_receipt
from noonday.drivers.sql.named_sql import load
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

SQL = load("noonday.drivers.postgres", "alerts")
LAST_ALERT_ID = "~"
"""Sorts after the id of every alert."""
FIRST_ID = "00000000-0000-0000-0000-000000000000"


class PostgresAlerts(Alerts):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def take_in(self, observations: Sequence[Observation]) -> int:
        incidents = [each.incident for each in observations if each.incident is not None]
        async with self._database.transaction() as session:
            taken = {row[0] for row in await session.fetch(SQL.take_incidents, incidents)} if incidents else set()
            accepted = [each for each in observations if each.incident is None or each.incident in taken]
            raised = raised_by(accepted)
            rows = as_json([msgspec.structs.astuple(each) for each in raised])
            kept = [Kept(*row) for row in await session.fetch(SQL.raise_alerts, rows)]
            await _add_events(session, events_of(accepted, raised, kept))
        return len({each.id for each in raised} & {each.id for each in kept})

    async def events(self, limit: int) -> list[AlertEvent]:
        return [_alert_event(*row) for row in await self._database.fetch(SQL.alert_events, limit)]

    async def recover(self, after: str, limit: int, now_ms: int) -> tuple[str | None, int]:
        rows = await self._database.fetch(SQL.unrecovered, after, limit)
        ended = [alert for alert, succeeded in rows if succeeded]
        jobs = await self._recover(ended, now_ms) if ended else 0
        return (rows[-1][0] if len(rows) == limit else None), jobs

    async def late(self, after: tuple[int, str], due_before_ms: int, limit: int) -> list[Late]:
        due_ms, key = after
        rows = await self._database.fetch(SQL.late, due_ms, key or FIRST_ID, due_before_ms, limit)
        return [Late(*row) for row in rows]

    async def stranded(self, after: str, fired_before_ms: int, limit: int) -> tuple[str | None, list[Late]]:
        rows = await self._database.fetch(SQL.stranded, after or FIRST_ID, fired_before_ms, limit)
        return (rows[-1][4] if len(rows) == limit else None), [_stranded(*row[:6]) for row in rows if row[6]]

    async def slow(self, after: str, started_before_ms: int, limit: int) -> list[Slow]:
        return [Slow(*row) for row in await self._database.fetch(SQL.slow, after or FIRST_ID, started_before_ms, limit)]

    async def list_alerts(self, tenant: TenantId, where: AlertFilter, after: str | None, limit: int) -> list[Alert]:
        parameters = [tenant, after or LAST_ALERT_ID, where.unread, where.kind, where.until_ms, limit]
        query = SQL.unread_alerts if where.unread else SQL.alerts
        if where.job_id is not None:
            query = SQL.alerts_of_job
            parameters.append(where.job_id)
        return [_alert(row) for row in await self._database.fetch(query, *parameters)]

    async def count_unread(self, tenant: TenantId, most: int) -> int:
        return int(await self._database.value(SQL.count_unread, tenant, most))

    async def find_alert(self, tenant: TenantId, alert: str) -> Alert | None:
        row = await self._database.row(SQL.alert, tenant, alert)
        return _alert(row) if row is not None else None

    async def acknowledge(
        self, tenant: TenantId, alerts: Collection[str], now_ms: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> int:
        async with self._database.transaction() as session:
            rows = await session.fetch(SQL.acknowledge, tenant, list(alerts), now_ms, audit.subject)
            await add_audit(session, audit)
            if receipt:
                await keep_receipt(session, receipt)
        return len(rows)

    async def prune(self, before_ms: int, limit: int) -> int:
        return len(await self._database.fetch(SQL.prune_alerts, before_ms, limit))

    async def _recover(self, alerts: Sequence[str], now_ms: int) -> int:
        async with self._database.transaction() as session:
            ended = [_alert(row) for row in await session.fetch(SQL.recover, list(alerts), now_ms)]
            events = recoveries(ended, now_ms)
            await _add_events(session, events)
        return len(events)


async def _add_events(session: Session, events: Sequence[AlertEvent]) -> None:
    if events:
        rows = as_json([msgspec.structs.astuple(each)[1:] for each in events])
        await session.execute(SQL.add_alert_events, rows)


def _alert_event(number: int, tenant: str, alert: str, kind: str, *rest: Any) -> AlertEvent:
    return AlertEvent(number, tenant, alert, AlertKind(kind), *rest)


def _stranded(due_ms: int, key: str, tenant: TenantId, pool: str, job: str, execution: str) -> Late:
    return Late(due_ms, key, tenant, pool, job, execution, early=True, handed_out=True)


def _alert(row: Any) -> Alert:
    name, tenant, kind, *rest = row
    return Alert(name, tenant, AlertKind(kind), *rest)
