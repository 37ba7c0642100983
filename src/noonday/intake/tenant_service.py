"""Tenant service: settings and usage of tenants."""

import msgspec

from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.presenters import usage_view
from noonday.intake.quotas import Quotas
from noonday.intake.receipts import Receipts
from noonday.model.caller import TENANT_RULE, Caller, is_tenant_name
from noonday.model.errors import Flaw, InvalidInput
from noonday.model.ids import TenantId
from noonday.model.job import instant_of
from noonday.model.tenancy import flaws_of_tenant
from noonday.model.view import TenantSettings, TenantView, UsageView
from noonday.ports.clock import Clock
from noonday.ports.settings import SettingsStore
from noonday.ports.workload import Workload


class TenantService:
    """Commands and queries of tenants."""

    def __init__(
        self, *, settings_store: SettingsStore, workload: Workload, quotas: Quotas, receipts: Receipts, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._workload = workload
        self._quotas = quotas
        self._receipts = receipts
        self._clock = clock

    async def get(self, caller: Caller, tenant: str) -> TenantView:
        """Return the settings of a tenant, which are the defaults if it has none. Raises Forbidden."""
        caller.require_for(tenant, "read")
        found = await self._settings_store.find_tenant(TenantId(tenant))
        settings, updated_ms = found or (TenantSettings(), None)
        return TenantView(tenant=tenant, settings=settings, updated_at=instant_of(updated_ms))

    async def put(
        self, caller: Caller, tenant: str, settings: TenantSettings, idem: Idempotency | None = None
    ) -> TenantView:
        """Replace the settings of a tenant. Raises InvalidInput."""
        _check(tenant, settings)
        async with self._receipts.once(caller, idem):
            name, detail = TenantId(tenant), msgspec.to_builtins(settings)
            audit = audit_entry(caller, "tenant.put", tenant, self._clock.now_ms(), detail, tenant=name)
            await self._settings_store.put_tenant(name, settings, audit)
            self._quotas.forget(name)
            return await self._receipts.keep(caller, idem, await self.get(caller, tenant))

    async def usage(self, caller: Caller, tenant: str, from_day: int, to_day: int) -> UsageView:
        """Return the usage of a tenant between two days, inclusive, by day and in total. Raises Forbidden."""
        caller.require_for(tenant, "read")
        days = await self._workload.usage(TenantId(tenant), from_day, to_day)
        return usage_view(tenant, from_day, to_day, days)


def _check(tenant: str, settings: TenantSettings) -> None:
    flaws = []
    if not is_tenant_name(tenant):
        flaws.append(Flaw("", f"a tenant's name has {TENANT_RULE}", tenant))
    flaws += flaws_of_tenant(settings)
    if flaws:
        raise InvalidInput(flaws[0].detail, flaws)
