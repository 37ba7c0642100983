"""Store alerts and find late work in a SQL database."""

from collections.abc import Collection, Sequence

import msgspec

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import Row, SqlSession, SqlSessions
from noonday.model.alert import (
    Alert,
    AlertEvent,
    AlertFilter,
    LateWork,
    Observation,
    SlowRun,
    TargetAlert,
    events_of,
    merge_observations,
    recoveries,
)
from noonday.model.audit import AuditEntry
from noonday.model.ids import FIRST_ID, TenantId
from noonday.model.receipt import Receipt
from noonday.ports.alerts import Alerts
from noonday.transitions.write_set import as_json

LAST_ALERT_ID = "~"
"""Sorts after the id of every alert."""


class SqlAlerts(Alerts):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("alerts")
        self._audit = AuditLog(sessions)

    async def record(self, observations: Sequence[Observation]) -> int:
        async def work(session: SqlSession) -> int:
            accepted = await self._accept(session, observations)
            raised = merge_observations(accepted)
            kept = [TargetAlert(**row) for row in await session.fetch(self._sql.raise_alerts, as_json(raised))]
            await self._add_events(session, events_of(accepted, raised, kept))
            return len({each.id for each in raised} & {each.id for each in kept})

        return await self._sessions.write(work)

    async def events(self, limit: int) -> list[AlertEvent]:
        rows = await self._sessions.fetch(self._sql.alert_events, limit)
        return [msgspec.convert(dict(row), AlertEvent) for row in rows]

    async def recover(self, after: str, limit: int, now_ms: int) -> tuple[str | None, int]:
        rows = await self._sessions.fetch(self._sql.unrecovered, after, limit)
        ended = [row["id"] for row in rows if row["succeeded"]]
        jobs = await self._sessions.write(lambda session: self._recover(session, ended, now_ms)) if ended else 0
        return (rows[-1]["id"] if len(rows) == limit else None), jobs

    async def late(self, after: tuple[int, str], due_before_ms: int, limit: int) -> list[LateWork]:
        due_ms, key = after
        rows = await self._sessions.fetch(self._sql.late, due_ms, key or FIRST_ID, due_before_ms, limit)
        return [msgspec.convert(dict(row), LateWork, strict=False) for row in rows]

    async def stranded(self, after: str, fired_before_ms: int, limit: int) -> tuple[str | None, list[LateWork]]:
        rows = await self._sessions.fetch(self._sql.stranded, after or FIRST_ID, fired_before_ms, limit)
        last = rows[-1]["job_id"] if len(rows) == limit else None
        return last, [_stranded(row) for row in rows if row["is_stranded"]]

    async def slow(self, after: str, started_before_ms: int, limit: int) -> list[SlowRun]:
        rows = await self._sessions.fetch(self._sql.slow, after or FIRST_ID, started_before_ms, limit)
        return [_slow(row) for row in rows]

    async def list_alerts(self, tenant: TenantId, where: AlertFilter, after: str | None, limit: int) -> list[Alert]:
        parameters = [tenant, after or LAST_ALERT_ID, where.unread, where.kind, where.until_ms, limit]
        query = self._sql.unread_alerts if where.unread else self._sql.alerts
        if where.job_id is not None:
            query = self._sql.alerts_of_job
            parameters.append(where.job_id)
        return [_alert(row) for row in await self._sessions.fetch(query, *parameters)]

    async def count_unread(self, tenant: TenantId, most: int) -> int:
        return int(await self._sessions.value(self._sql.count_unread, tenant, most))

    async def find_alert(self, tenant: TenantId, alert: str) -> Alert | None:
        row = await self._sessions.row(self._sql.alert, tenant, alert)
        return None if row is None else _alert(row)

    async def acknowledge(
        self, tenant: TenantId, alerts: Collection[str], now_ms: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> int:
        async def work(session: SqlSession) -> int:
            rows = await session.fetch(self._sql.acknowledge, tenant, list(alerts), now_ms, audit.subject)
            await self._audit.add(session, audit, receipt)
            return len(rows)

        return await self._sessions.write(work)

    async def prune(self, before_ms: int, limit: int) -> int:
        rows = await self._sessions.write(lambda session: session.fetch(self._sql.prune_alerts, before_ms, limit))
        return len(rows)

    async def _accept(self, session: SqlSession, observations: Sequence[Observation]) -> list[Observation]:
        """Delete the incidents of observations. Returns the observations whose incident still existed, or that have none."""
        incidents = [each.incident for each in observations if each.incident is not None]
        rows = await session.fetch(self._sql.take_incidents, incidents) if incidents else ()
        taken = {row["id"] for row in rows}
        return [each for each in observations if each.incident is None or each.incident in taken]

    async def _recover(self, session: SqlSession, alerts: Sequence[str], now_ms: int) -> int:
        ended = [_alert(row) for row in await session.fetch(self._sql.recover, list(alerts), now_ms)]
        events = recoveries(ended, now_ms)
        await self._add_events(session, events)
        return len(events)

    async def _add_events(self, session: SqlSession, events: Sequence[AlertEvent]) -> None:
        if events:
            await session.execute(self._sql.add_alert_events, as_json(events))


def _alert(row: Row) -> Alert:
    return msgspec.convert(dict(row), Alert)


def _stranded(row: Row) -> LateWork:
    return msgspec.convert({**row, "early": True, "handed_out": True}, LateWork)


def _slow(row: Row) -> SlowRun:
    return msgspec.convert({**row, **msgspec.json.decode(row["usual"])}, SlowRun)
