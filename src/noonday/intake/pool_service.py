"""Pool service: settings and backlog of pools."""

from collections.abc import Sequence

from noonday.intake.audit import audit_entry
from noonday.intake.blockers import why_paused
from noonday.intake.catalogue import Catalogue
from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.intake.scope import tenant_in_scope
from noonday.model.audit import EVERY_TENANT
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.pause import Pause
from noonday.model.retry import flaws_of
from noonday.model.rows import PoolRow
from noonday.model.tenancy import flaws_of_pool, flaws_of_pool_name
from noonday.model.view import HandlerView, PoolSettings, PoolView
from noonday.ports.clock import Clock
from noonday.ports.settings import SettingsStore
from noonday.ports.workload import Workload


class PoolService:
    """Commands and queries of pools."""

    def __init__(
        self,
        *,
        settings_store: SettingsStore,
        workload: Workload,
        catalogue: Catalogue,
        receipts: Receipts,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._workload = workload
        self._catalogue = catalogue
        self._receipts = receipts
        self._clock = clock

    async def list_pools(self, caller: Caller, *, all_tenants: bool = False) -> list[PoolView]:
        """List the pools with the backlog of the caller's tenant, or of all tenants, which requires the scope operator."""
        pauses = await self._settings_store.pauses()
        rows = await self._workload.list_pools(self._clock.now_ms(), None, tenant_in_scope(caller, all_tenants))
        return [_view(row, pauses) for row in rows]

    async def get(self, caller: Caller, name: str, *, all_tenants: bool = False) -> PoolView:
        """Return a pool as `list_pools` does. Raises NotFound."""
        rows = await self._workload.list_pools(self._clock.now_ms(), name, tenant_in_scope(caller, all_tenants))
        if not rows:
            raise NotFound(f"no pool {name!r}", pool=name)
        return _view(rows[0], await self._settings_store.pauses())

    async def put(self, caller: Caller, name: str, settings: PoolSettings, idem: Idempotency | None = None) -> PoolView:
        """Create a pool, or replace its settings. Raises InvalidInput."""
        _check(name, settings)
        async with self._receipts.once(caller, idem):
            audit = audit_entry(caller, "pool.put", name, self._clock.now_ms(), tenant=EVERY_TENANT)
            await self._settings_store.put_pool(name, settings, audit)
            self._catalogue.forget()
            return await self._receipts.keep(caller, idem, await self.get(caller, name))


def _check(name: str, settings: PoolSettings) -> None:
    flaws = flaws_of_pool_name(name)
    flaws += flaws_of(settings.retry_policy, "/retryPolicy") if settings.retry_policy else []
    flaws += flaws_of_pool(settings)
    if flaws:
        raise InvalidInput(flaws[0].detail, flaws)


def _view(row: PoolRow, pauses: Sequence[Pause]) -> PoolView:
    note = why_paused(pauses, ("POOL", row.name))
    if note is None and not row.workers:
        note = f"no workers: {row.due} due entries wait on the timeline" if row.due else "no workers"
    return PoolView(
        name=row.name,
        settings=row.settings,
        handlers=tuple(
            HandlerView(
                name=info.name,
                schema=info.schema,
                retry_policy=info.retry_policy,
                timeout_sec=info.timeout_sec,
                workers=workers,
                doc=info.doc,
            )
            for info, workers in row.handlers
        ),
        workers=row.workers,
        capacity=row.capacity,
        queued=row.queued,
        running=row.running,
        due=row.due,
        note=note,
    )
