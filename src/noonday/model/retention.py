"""Retention periods."""

from collections.abc import Mapping

import msgspec

from noonday.model.ids import TenantId


class Retention(msgspec.Struct, frozen=True):
    """Retention periods, in milliseconds."""

    succeeded_ms: int
    cancelled_ms: int
    expired_ms: int
    dead_ms: int
    jobs_ms: int
    """Cancelled and completed jobs: the time since their last change."""
    decisions_ms: int
    audit_ms: int
    receipts_ms: int
    tenants: Mapping[TenantId, int] = {}
    """Periods of tenants that have one of their own for ended executions and jobs."""

    def jobs_before_ms(self, tenant: TenantId, now_ms: int) -> int:
        """Return the instant such that an ended job of this tenant may be deleted if it has not changed since."""
        return now_ms - self.tenants.get(tenant, self.jobs_ms)

    def any_jobs_before_ms(self, now_ms: int) -> int:
        """Return the instant such that no job that has changed since may be deleted, whatever its tenant."""
        return now_ms - min([self.jobs_ms, *self.tenants.values()])

    def keep_longer_than(self, age_ms: int) -> list[TenantId]:
        """Return the tenants whose own period is longer than an age."""
        return [tenant for tenant, own_ms in self.tenants.items() if own_ms > age_ms]
