"""Pause service: pauses of tenants, of pools, and of everything."""

from noonday.intake.audit import audit_entry
from noonday.intake.catalogue import Catalogue
from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.audit import EVERY_TENANT, AuditEntry
from noonday.model.caller import Caller
from noonday.model.errors import NotFound, nearest
from noonday.model.ids import TenantId
from noonday.model.job import instant_of
from noonday.model.pause import Pause
from noonday.model.view import PauseList, PauseView
from noonday.ports.clock import Clock
from noonday.ports.settings import SettingsStore


class PauseService:
    """Commands and queries of pauses. The kind of a pause is TENANT, POOL, or ALL with an empty name."""

    def __init__(
        self, *, settings_store: SettingsStore, catalogue: Catalogue, receipts: Receipts, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._catalogue = catalogue
        self._receipts = receipts
        self._clock = clock

    async def list_pauses(self, caller: Caller) -> PauseList:
        """List what is paused. Only operators see pauses of other tenants."""
        pauses = (
            PauseView(kind=pause.kind, name=pause.name, since=instant_of(pause.since_ms), by=pause.subject)
            for pause in await self._settings_store.pauses()
            if pause.kind != "TENANT" or pause.name == caller.tenant or caller.may("operator")
        )
        return PauseList(pauses=tuple(pauses))

    async def add(self, caller: Caller, kind: str, name: str, idem: Idempotency | None = None) -> PauseList:
        """Pause dispatch of a tenant, of a pool, or of everything. Raises Forbidden, and NotFound for an unknown pool."""
        audit = self._audit(caller, kind, name, "pause")
        if kind == "POOL":
            await self._require_pool(name)
        pause = Pause(kind, name, self._clock.now_ms(), caller.subject)
        async with self._receipts.once(caller, idem):
            await self._settings_store.add_pause(pause, audit)
            return await self._receipts.keep(caller, idem, await self.list_pauses(caller))

    async def remove(self, caller: Caller, kind: str, name: str, idem: Idempotency | None = None) -> PauseList:
        """Resume dispatch of a tenant, of a pool, or of everything. Raises Forbidden."""
        audit = self._audit(caller, kind, name, "resume")
        async with self._receipts.once(caller, idem):
            await self._settings_store.remove_pause(kind, name, audit)
            return await self._receipts.keep(caller, idem, await self.list_pauses(caller))

    def _audit(self, caller: Caller, kind: str, name: str, verb: str) -> AuditEntry:
        tenant = _require_permission(caller, kind, name)
        return audit_entry(caller, f"{kind.lower()}.{verb}", name, self._clock.now_ms(), tenant=tenant)

    async def _require_pool(self, name: str) -> None:
        known = await self._catalogue.pools(name)
        if name not in known:
            guess = nearest(name, known)
            raise NotFound(f"no pool {name!r}" + (f"; did you mean {guess}?" if guess else ""), pool=name)


def _require_permission(caller: Caller, kind: str, name: str) -> TenantId:
    """Return the tenant that a pause concerns. Raises Forbidden: only an operator pauses pools, everything, or other tenants."""
    if kind == "TENANT":
        caller.require_for(name, "admin")
        return TenantId(name)
    caller.require("operator")
    return EVERY_TENANT
