"""The number of entries that tenants may take in a claim."""

from collections.abc import AsyncIterator, Sequence

import pytest

from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.firing import Entry
from noonday.model.pause import Pause
from noonday.model.view import TenantSettings
from noonday.scheduler.allowances import Allowances
from noonday.scheduler.in_flight import InFlight
from tests.support.clock import ManualClock
from tests.support.factories import POOL, TENANT, audit, dispatch, entry

LIMIT = 10


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


class Claims:
    """Claims of a scheduler, one after the other."""

    def __init__(self, store: SqliteStore) -> None:
        self.clock = ManualClock()
        self.index = MemoryHotIndex(lead_ms=0)
        self.store = store
        self.allowances = Allowances(store.settings_store, MemoryTokens(), self.index, self.clock, InFlight())

    async def set_tenant(self, settings: TenantSettings) -> None:
        await self.store.settings_store.put_tenant(TENANT, settings, audit())

    async def claim(self) -> list[Entry]:
        now_ms = self.clock.now_ms()
        credit, shares = await self.allowances.for_claim({POOL: LIMIT}, LIMIT)
        claimed = await self.index.claim(now_ms, range(256), credit, LIMIT, shares)
        await self.allowances.give_back(shares)
        return claimed


@pytest.fixture
async def claims(store: SqliteStore) -> Claims:
    return Claims(store)


async def due(claims: Claims, count: int) -> Sequence[Entry]:
    entries = [entry(due_ms=claims.clock.now_ms()) for _ in range(count)]
    await claims.index.add(entries)
    return entries


async def test_tenant_without_a_limit_takes_all(claims: Claims) -> None:
    await due(claims, 5)
    assert len(await claims.claim()) == 5


async def test_tenant_with_a_rate_takes_its_burst_and_then_waits(claims: Claims) -> None:
    await claims.set_tenant(TenantSettings(rate_per_sec=1, burst=2))
    await due(claims, 5)
    assert len(await claims.claim()) == 2
    assert await claims.claim() == []
    assert claims.allowances.retry_at_ms is not None


async def test_tokens_of_entries_that_become_no_dispatch_are_given_back(claims: Claims) -> None:
    await claims.set_tenant(TenantSettings(rate_per_sec=1, burst=2))
    await due(claims, 5)
    skipped, fired = await claims.claim()
    await claims.allowances.give_back_unused([skipped, fired], [dispatch(tenant=fired.tenant)])
    assert len(await claims.claim()) == 1


async def test_dispatches_beyond_the_claimed_entries_give_nothing_back(claims: Claims) -> None:
    await claims.set_tenant(TenantSettings(rate_per_sec=1, burst=2))
    await due(claims, 5)
    first, second = await claims.claim()
    await claims.allowances.give_back_unused([first, second], [dispatch(tenant=TENANT) for _ in range(3)])
    assert await claims.claim() == []


async def test_paused_tenant_takes_nothing(claims: Claims, store: SqliteStore) -> None:
    await store.settings_store.add_pause(Pause("TENANT", TENANT, 0, "ann"), audit())
    await due(claims, 2)
    assert await claims.claim() == []


async def test_paused_pool_has_no_credit(claims: Claims, store: SqliteStore) -> None:
    await store.settings_store.add_pause(Pause("POOL", POOL, 0, "ann"), audit())
    await due(claims, 2)
    assert await claims.claim() == []


async def test_tenant_with_a_cap_takes_no_more_than_its_free_slots(claims: Claims) -> None:
    await claims.set_tenant(TenantSettings(max_running=3))
    await due(claims, 5)
    assert len(await claims.claim()) == 3
