"""Pools, their settings and their backlog."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.pool_service import PoolService
from noonday.model.errors import Forbidden, InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.model.retry import RetryPolicy
from noonday.model.view import PoolSettings
from tests.intake.parts import ANN, OLGA, Parts, parts_in_memory
from tests.support.factories import HANDLER, POOL


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def pools(parts: Parts) -> PoolService:
    return PoolService(
        settings_store=parts.store.settings_store,
        workload=parts.store.workload,
        catalogue=parts.catalogue,
        receipts=parts.receipts,
        clock=parts.clock,
    )


async def test_pool_shows_its_handlers_its_capacity_and_its_load(parts: Parts, pools: PoolService) -> None:
    await parts.add_worker()
    await parts.fire(await parts.add())
    await parts.add()
    view = await pools.get(ANN, POOL)
    assert [(handler.name, handler.workers) for handler in view.handlers] == [(HANDLER, 1)]
    assert (view.workers, view.capacity, view.queued, view.running, view.due) == (1, 4, 1, 0, 1)
    assert view.note is None


async def test_pool_without_workers_says_how_much_waits(parts: Parts, pools: PoolService) -> None:
    await pools.put(OLGA, POOL, PoolSettings())
    assert (await pools.get(ANN, POOL)).note == "no workers"
    await parts.add()
    assert (await pools.get(ANN, POOL)).note == "no workers: 1 due entries wait on the timeline"


async def test_backlog_is_that_of_the_tenant_unless_an_operator_asks_for_all(parts: Parts, pools: PoolService) -> None:
    await parts.add_worker()
    await parts.add(tenant=TenantId("globex"))
    assert [view.due for view in await pools.list_pools(ANN)] == [0]
    assert [view.due for view in await pools.list_pools(OLGA, all_tenants=True)] == [1]
    with pytest.raises(Forbidden):
        await pools.list_pools(ANN, all_tenants=True)


async def test_settings_are_replaced_as_a_whole(pools: PoolService) -> None:
    await pools.put(OLGA, POOL, PoolSettings(timeout_sec=7, max_running=3))
    view = await pools.put(OLGA, POOL, PoolSettings(timeout_sec=9))
    assert view.settings == PoolSettings(timeout_sec=9)


async def test_new_pool_takes_jobs_at_once(parts: Parts, pools: PoolService) -> None:
    assert await parts.catalogue.pools("web") == []
    await pools.put(OLGA, "web", PoolSettings())
    assert await parts.catalogue.pools("web") == ["web"]


async def test_cap_of_a_pool_holds_for_the_next_fire(parts: Parts, pools: PoolService) -> None:
    await pools.put(OLGA, POOL, PoolSettings(max_running=1))
    for _ in range(2):
        await parts.add()
    assert len((await parts.crank.fire()).dispatches) == 1


async def test_malformed_settings_are_refused_with_every_field(pools: PoolService) -> None:
    with pytest.raises(InvalidInput) as refused:
        await pools.put(OLGA, "no spaces", PoolSettings(retry_policy=RetryPolicy(max_attempts=0), max_running=-1))
    assert {flaw.pointer for flaw in refused.value.flaws} >= {"/retryPolicy/maxAttempts", "/maxRunning"}


async def test_unknown_pool_is_not_found(pools: PoolService) -> None:
    with pytest.raises(NotFound, match="no pool 'web'"):
        await pools.get(ANN, "web")
