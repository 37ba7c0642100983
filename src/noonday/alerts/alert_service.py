"""Alert inbox: list, read and acknowledge alerts."""

from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.alert import Alert, AlertFilter, AlertKind
from noonday.model.alert_view import MOST_UNREAD, Acknowledged, AcknowledgeRequest, AlertList, AlertView
from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.errors import NotFound
from noonday.model.job import instant_of, ms_of
from noonday.model.pool import WEBHOOKS_POOL
from noonday.ports.alerts import Alerts
from noonday.ports.clock import Clock

STEP = 500
"""Alerts that `acknowledge_all` acknowledges in one transaction."""


class AlertService:
    def __init__(self, alerts: Alerts, receipts: Receipts, clock: Clock) -> None:
        self._alerts = alerts
        self._receipts = receipts
        self._clock = clock

    async def list_alerts(
        self,
        caller: Caller,
        *,
        unread: bool | None = None,
        kind: AlertKind | None = None,
        job_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AlertList:
        """List alerts, newest first."""
        where = AlertFilter(unread=unread, kind=kind, job_id=job_id)
        found = await self._alerts.list_alerts(caller.tenant, where, cursor, limit + 1)
        return AlertList(
            alerts=tuple(map(alert_view, found[:limit])),
            unread=await self._alerts.count_unread(caller.tenant, MOST_UNREAD),
            next_cursor=found[limit - 1].id if len(found) > limit else None,
        )

    async def get(self, caller: Caller, alert_id: str) -> AlertView:
        """Return one alert. Raises NotFound."""
        return alert_view(await self._get(caller, alert_id))

    async def acknowledge(self, caller: Caller, alert_id: str, idem: Idempotency | None = None) -> AlertView:
        """Mark an alert as seen. An alert that was acknowledged before stays as it is. Raises NotFound."""
        async with self._receipts.once(caller, idem):
            alert = await self._get(caller, alert_id)
            if alert.acknowledged_ms is None:
                now_ms = self._clock.now_ms()
                audit = AuditEntry(caller.tenant, now_ms, caller.subject, "alert.acknowledge", alert.id)
                await self._alerts.acknowledge(caller.tenant, [alert.id], now_ms, audit)
            return await self._receipts.keep(caller, idem, await self.get(caller, alert_id))

    async def acknowledge_all(
        self, caller: Caller, request: AcknowledgeRequest, idem: Idempotency | None = None
    ) -> Acknowledged:
        """Acknowledge all unread alerts that match, page by page. Alerts opened after the call stay unread."""
        async with self._receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            until_ms = now_ms if request.until is None else min(now_ms, ms_of(request.until))
            job_id = None if request.task_id is None else request.task_id.lower()
            where = AlertFilter(unread=True, kind=request.kind, job_id=job_id, until_ms=until_ms)
            count = await self._acknowledge_all(caller, where, now_ms)
            return await self._receipts.keep(caller, idem, Acknowledged(count))

    async def _acknowledge_all(self, caller: Caller, where: AlertFilter, now_ms: int) -> int:
        count, after = 0, None
        conditions: dict[str, object] = {"kind": where.kind, "job_id": where.job_id, "until_ms": where.until_ms}
        audit = AuditEntry(caller.tenant, now_ms, caller.subject, "alert.acknowledge", "", conditions)
        while page := await self._alerts.list_alerts(caller.tenant, where, after, STEP):
            after = page[-1].id
            count += await self._alerts.acknowledge(caller.tenant, [alert.id for alert in page], now_ms, audit)
        return count

    async def _get(self, caller: Caller, alert_id: str) -> Alert:
        found = await self._alerts.find_alert(caller.tenant, alert_id.lower())
        if found is None:
            raise NotFound(f"there is no alert {alert_id}", alert_id=alert_id)
        return found


def alert_view(alert: Alert) -> AlertView:
    job = alert.job_id or None
    is_task = alert.pool == WEBHOOKS_POOL and alert.endpoint is not None
    return AlertView(
        id=alert.id,
        kind=alert.kind,
        status=alert.status,
        message=alert.message,
        count=alert.count,
        first_at=instant_of(alert.first_ms),
        last_at=instant_of(alert.last_ms),
        job_id=job,
        task_id=job if is_task else None,
        name=alert.job_name,
        execution_id=alert.execution_id or None,
        endpoint=alert.endpoint,
        acknowledged_at=instant_of(alert.acknowledged_ms),
        acknowledged_by=alert.acknowledged_by,
        recovered_at=instant_of(alert.recovered_ms),
    )
