"""Settings of tenants and pools, pauses, and the audit log."""

import msgspec
import pytest

from noonday.model.audit import EVERY_TENANT, AuditEntry
from noonday.model.ids import TenantId
from noonday.model.message import Bye, HandlerInfo
from noonday.model.pause import Pause
from noonday.model.retry import RetryPolicy
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.settings import SettingsStore
from noonday.ports.workload import Workload
from tests.support.crank import Crank
from tests.support.factories import (
    DAY,
    HANDLER,
    NOW_MS,
    POOL,
    TENANT,
    WORKER,
    audit,
    hello,
)

OTHER = TenantId("other")


# Pools


async def test_pool_keeps_its_settings(crank: Crank, settings_store: SettingsStore, workload: Workload) -> None:
    settings = PoolSettings(retry_policy=RetryPolicy(max_attempts=7), timeout_sec=30, description="Loads.")
    await settings_store.put_pool(POOL, PoolSettings(), audit("pool.put"))
    await settings_store.put_pool(POOL, settings, audit("pool.put", NOW_MS + 1))
    await crank.settle(signs=[hello("w-1"), Bye(WORKER, NOW_MS)])
    (pool,) = await workload.list_pools(NOW_MS)
    assert (pool.settings, pool.workers) == (settings, 0)
    assert await settings_store.pool_names() == [POOL]
    assert len(await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)) == 2


async def test_handler_is_described_by_the_newest_worker(crank: Crank, settings_store: SettingsStore) -> None:
    assert await settings_store.find_handler(POOL, HANDLER) is None
    await crank.settle(signs=[hello("w-1", HandlerInfo(POOL, HANDLER, doc="old"))])
    newer = HandlerInfo(POOL, HANDLER, {"type": "object"}, doc="new")
    await crank.settle(signs=[hello("w-2", newer)])
    assert await settings_store.find_handler(POOL, HANDLER) == newer
    assert await settings_store.find_handler("mail", HANDLER) is None


async def test_handlers_of_a_pool_are_listed_by_name(crank: Crank, settings_store: SettingsStore) -> None:
    assert await settings_store.handler_names(POOL, 10) == []
    names = ("b", "a", "c")
    await crank.settle(signs=[hello("w-1", *(HandlerInfo(POOL, each) for each in names), HandlerInfo("mail", "d"))])
    assert await settings_store.handler_names(POOL, 10) == ["a", "b", "c"]
    assert await settings_store.handler_names(POOL, 2) == ["a", "b"]


# Tenants


async def test_a_tenants_settings_are_kept_with_the_time_they_were_set(settings_store: SettingsStore) -> None:
    assert await settings_store.find_tenant(TENANT) is None
    await settings_store.put_tenant(TENANT, TenantSettings(weight=2), audit("tenant.put"))
    settings = TenantSettings(weight=3, rate_per_sec=1.5, max_jobs=10)
    await settings_store.put_tenant(TENANT, settings, audit("tenant.put", NOW_MS + 1))
    assert await settings_store.find_tenant(TENANT) == (settings, NOW_MS + 1)
    assert len(await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)) == 2


async def test_settings_are_found_in_the_order_in_which_they_were_put(settings_store: SettingsStore) -> None:
    first, second = TenantSettings(weight=2), TenantSettings(weight=3)
    await settings_store.put_tenant(TENANT, first, audit("tenant.put", NOW_MS))
    await settings_store.put_tenant(OTHER, first, audit("tenant.put", NOW_MS + 5))
    rows = await settings_store.tenants_after(0)
    assert [(tenant, settings) for tenant, settings, _ in rows] == [(TENANT, first), (OTHER, first)]
    await settings_store.put_tenant(TENANT, second, audit("tenant.put", NOW_MS + 6))
    ((tenant, settings, seq),) = await settings_store.tenants_after(rows[-1][2])
    assert (tenant, settings) == (TENANT, second)
    assert await settings_store.tenants_after(seq) == []


async def test_settings_put_while_the_clock_was_ahead_hide_no_later_ones(settings_store: SettingsStore) -> None:
    await settings_store.put_tenant(TENANT, TenantSettings(weight=2), audit("tenant.put", NOW_MS + DAY))
    ((_, _, seen),) = await settings_store.tenants_after(0)
    await settings_store.put_tenant(TENANT, TenantSettings(weight=3), audit("tenant.put", NOW_MS))
    ((_, settings, _),) = await settings_store.tenants_after(seen)
    assert settings.weight == 3


# Pauses


async def test_pause_is_stored_once_since_its_first_request_until_it_is_removed(
    settings_store: SettingsStore,
) -> None:
    assert await settings_store.pauses() == []
    first = Pause("POOL", "mail", NOW_MS, "ann")
    await settings_store.add_pause(first, audit("pool.pause"))
    await settings_store.add_pause(Pause("POOL", "mail", NOW_MS + 9, "bob"), audit("pool.pause"))
    await settings_store.add_pause(Pause("ALL", "", NOW_MS + 1, "bob"), audit("all.pause"))
    assert sorted(await settings_store.pauses()) == [("ALL", "", NOW_MS + 1, "bob"), first]
    await settings_store.remove_pause("POOL", "mail", audit("pool.resume"))
    await settings_store.remove_pause("TENANT", "mail", audit("tenant.resume"))
    assert await settings_store.pauses() == [("ALL", "", NOW_MS + 1, "bob")]
    actions = [
        entry.action
        for _, entry in await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=9)
    ]
    assert actions == ["tenant.resume", "pool.resume", "all.pause", "pool.pause", "pool.pause"]


# Audit


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_the_audit_is_listed_newest_first_filtered_and_in_pages(settings_store: SettingsStore) -> None:
    entries = [
        audit("tenant.put", NOW_MS + at, subject=("ann", "bob")[at % 2], target=f"t-{at}", detail={"at": at})
        for at in range(5)
    ]
    for entry in entries:
        await settings_store.put_tenant(OTHER, TenantSettings(), entry)

    async def listed(
        target: str | None = None, subject: str | None = None, after: int | None = None, limit: int = 10
    ) -> list[tuple[int, object]]:
        found = await settings_store.list_audit(TENANT, target=target, subject=subject, after=after, limit=limit)
        return [(number, entry) for number, entry in found]

    everything = await listed()
    assert [entry for _, entry in everything] == entries[::-1]
    assert [entry for _, entry in await listed(subject="bob")] == [entries[3], entries[1]]
    assert [entry for _, entry in await listed(target="t-2")] == [entries[2]]
    assert await listed(limit=2) == everything[:2]
    assert await listed(after=everything[1][0]) == everything[2:]
    assert await settings_store.list_audit(OTHER, target=None, subject=None, after=None, limit=10) == []


async def test_an_entry_that_concerns_every_tenant_is_in_the_audit_of_each(settings_store: SettingsStore) -> None:
    for_all = msgspec.structs.replace(audit("all.pause"), tenant=EVERY_TENANT)
    own = audit("tenant.pause", NOW_MS + 1)
    await settings_store.add_pause(Pause("ALL", "", NOW_MS, "ops"), for_all)
    await settings_store.add_pause(Pause("TENANT", TENANT, NOW_MS, "ops"), own)
    found = [
        entry for _, entry in await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)
    ]
    assert found == [own, for_all]
    (other,) = await settings_store.list_audit(OTHER, target=None, subject=None, after=None, limit=10)
    assert other[1] == for_all
    ((last, _),) = await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=1)
    assert await settings_store.list_audit(TENANT, target=None, subject=None, after=last, limit=10) == [other]


async def test_the_audit_of_every_tenant_has_each_entry_once(settings_store: SettingsStore) -> None:
    for_all = msgspec.structs.replace(audit("all.pause"), tenant=EVERY_TENANT)
    await settings_store.add_pause(Pause("ALL", "", NOW_MS, "ops"), for_all)
    await settings_store.add_pause(Pause("TENANT", TENANT, NOW_MS, "ops"), audit("tenant.pause", NOW_MS + 1))
    found = await settings_store.list_audit(EVERY_TENANT, target=None, subject=None, after=None, limit=10)
    assert [entry for _, entry in found] == [for_all]


async def test_a_visit_is_noted_once_a_day(settings_store: SettingsStore) -> None:
    def visit(subject: str, at_ms: int) -> AuditEntry:
        return AuditEntry(TENANT, at_ms, subject, "OPERATOR_READ", TENANT)

    day_ms = NOW_MS // 86_400_000 * 86_400_000
    visits = [visit("ann", day_ms), visit("ann", day_ms + 86_399_999), visit("bob", day_ms), visit("ann", day_ms - 1)]
    for each in visits:
        await settings_store.note_visit(each)
    found = [
        entry for _, entry in await settings_store.list_audit(TENANT, target=None, subject=None, after=None, limit=10)
    ]
    assert found == [visits[3], visits[2], visits[0]]
