"""The role of housekeeping: prune old records, and set gauges."""

import msgspec

from noonday.model.ids import TenantId
from noonday.model.operation import KEPT_MS
from noonday.model.retention import Retention
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, every
from noonday.wiring.drivers import Drivers
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.settings.access import LimitSettings
from noonday.wiring.settings.engine import RetentionSettings

_DAY_MS = 86_400_000
_STEP = 500


def housekeeping(drivers: Drivers, context: ProcessContext, *, shows_clock: bool) -> ProcessRole:
    """Prune and set gauges every few seconds. `shows_clock`: whether to set the clock offset gauge."""
    settings = context.settings
    housekeeper = Housekeeper(drivers, settings.retention, settings.limits, context.metrics, shows_clock=shows_clock)
    return ProcessRole("housekeeping", Loop("housekeeper", housekeeper, drivers.clock, every(5.0), stuck_after_sec=120))


class Housekeeper:
    """Prunes old records and sets gauges, in small steps so that it does not keep the store busy."""

    def __init__(
        self,
        drivers: Drivers,
        retention: RetentionSettings,
        limits: LimitSettings,
        metrics: Metrics,
        *,
        shows_clock: bool = True,
    ) -> None:
        """`shows_clock`: whether to set the clock offset gauge. False if another loop sets it."""
        self._shows_clock = shows_clock
        self._drivers = drivers
        self._retention = _in_ms(retention, limits)
        self._alerts_ms = int(retention.alerts_days * _DAY_MS)
        self._retention_by_tenant: dict[TenantId, int] = {}
        self._tenants_seq = 0
        """Sequence number of the latest tenant change that was read."""
        self._metrics = metrics
        self._offset = self._wall_minus_monotonic()

    async def run_once(self, now_ms: int) -> int:
        await self._set_gauges(now_ms)
        await self._read_tenants()
        policy = msgspec.structs.replace(self._retention, tenants=self._retention_by_tenant)
        pruned = await self._drivers.executions.prune(policy, now_ms, _STEP)
        pruned_alerts = await self._drivers.alerts.prune(now_ms - self._alerts_ms, _STEP)
        pruned_operations = await self._drivers.operations.prune(now_ms - KEPT_MS, _STEP)
        return int(max(pruned, pruned_alerts, pruned_operations) >= _STEP)

    async def _read_tenants(self) -> None:
        """Read the retention times that tenants have set for themselves."""
        for tenant, settings, seq in await self._drivers.settings_store.tenants_after(self._tenants_seq):
            self._tenants_seq = seq
            self._retention_by_tenant.pop(tenant, None)
            if settings.retention_days is not None:
                self._retention_by_tenant[tenant] = settings.retention_days * _DAY_MS

    async def _set_gauges(self, now_ms: int) -> None:
        counts = await self._drivers.workload.counts(now_ms)
        due = await self._drivers.firing.count_due(now_ms)
        metrics = self._metrics
        metrics.dead_letters.set(counts["dead"])
        metrics.running.set(counts["running"])
        metrics.workers.set(counts["workers"])
        oldest = counts["oldest_due_ms"]
        metrics.oldest_due_age.set(max(0, now_ms - oldest) / 1000 if oldest else 0)
        metrics.due_now.clear()
        for pool, (count, _) in due.items():
            metrics.due_now.labels(pool).set(count)
        metrics.queued.clear()
        metrics.pool_workers.clear()
        for row in await self._drivers.workload.list_pools(now_ms):
            metrics.queued.labels(row.name).set(row.queued)
            metrics.pool_workers.labels(row.name).set(row.workers)
        if self._shows_clock:
            metrics.clock_offset.set(self._wall_minus_monotonic() - self._offset)

    def _wall_minus_monotonic(self) -> float:
        return self._drivers.clock.now_ms() / 1000 - self._drivers.clock.monotonic()


def _in_ms(retention: RetentionSettings, limits: LimitSettings) -> Retention:
    return Retention(
        succeeded_ms=int(retention.succeeded_days * _DAY_MS),
        cancelled_ms=int(retention.cancelled_days * _DAY_MS),
        expired_ms=int(retention.expired_days * _DAY_MS),
        dead_ms=int(retention.dead_days * _DAY_MS),
        jobs_ms=int(retention.jobs_days * _DAY_MS),
        decisions_ms=int(retention.decisions_days * _DAY_MS),
        audit_ms=int(retention.audit_days * _DAY_MS),
        receipts_ms=int(limits.idempotency_hours * 3_600_000),
    )
