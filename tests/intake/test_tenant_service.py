"""Settings and usage of tenants."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.tenant_service import TenantService
from noonday.model.errors import Forbidden, InvalidInput
from noonday.model.execution import Outcome
from noonday.model.usage import DAY_MS
from noonday.model.view import TenantInPool, TenantSettings
from tests.intake.parts import ANN, OLGA, STRANGER, Parts, parts_in_memory
from tests.support.factories import NOW_MS, POOL, TENANT, instant, report

TODAY = NOW_MS // DAY_MS


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def tenants(parts: Parts) -> TenantService:
    return TenantService(
        settings_store=parts.store.settings_store,
        workload=parts.store.workload,
        quotas=parts.quotas,
        receipts=parts.receipts,
        clock=parts.clock,
    )


async def test_tenant_without_settings_has_the_defaults(tenants: TenantService) -> None:
    view = await tenants.get(ANN, TENANT)
    assert (view.settings, view.updated_at) == (TenantSettings(), None)


async def test_settings_are_stored_with_their_time(tenants: TenantService) -> None:
    view = await tenants.put(OLGA, TENANT, TenantSettings(weight=3))
    assert (view.settings.weight, view.updated_at) == (3, instant(NOW_MS))


async def test_new_quota_holds_at_once_in_the_process_that_stored_it(parts: Parts, tenants: TenantService) -> None:
    await parts.quotas.settings(TENANT)
    await tenants.put(OLGA, TENANT, TenantSettings(max_jobs=7))
    assert (await parts.quotas.settings(TENANT)).max_jobs == 7


async def test_cap_of_a_tenant_in_a_pool_holds_for_the_next_fire(parts: Parts, tenants: TenantService) -> None:
    await tenants.put(OLGA, TENANT, TenantSettings(pools={POOL: TenantInPool(max_running=1)}))
    for _ in range(2):
        await parts.add()
    assert len((await parts.crank.fire()).dispatches) == 1


async def test_malformed_settings_are_refused(tenants: TenantService) -> None:
    with pytest.raises(InvalidInput):
        await tenants.put(OLGA, TENANT, TenantSettings(weight=0))
    with pytest.raises(InvalidInput, match="a tenant's name has"):
        await tenants.put(OLGA, "a/b", TenantSettings())


async def test_settings_and_usage_of_another_tenant_need_an_operator(tenants: TenantService) -> None:
    with pytest.raises(Forbidden):
        await tenants.get(STRANGER, TENANT)
    with pytest.raises(Forbidden):
        await tenants.usage(STRANGER, TENANT, TODAY, TODAY)


async def test_usage_is_counted_by_day_and_in_total(parts: Parts, tenants: TenantService) -> None:
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        dispatch = await parts.fire(await parts.add())
        await parts.crank.settle(report(dispatch, outcome, tenant=TENANT, payload_bytes=5))
    view = await tenants.usage(ANN, TENANT, TODAY - 1, TODAY)
    assert [(day.day.isoformat(), day.runs) for day in view.days] == [("2030-01-01", 2)]
    total = view.total
    assert (total.runs, total.succeeded, total.failed, total.payload_bytes) == (2, 1, 1, 10)
