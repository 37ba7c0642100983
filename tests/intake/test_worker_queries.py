"""Workers and the figures of the engine, as a tenant and as an operator see them."""

from collections.abc import AsyncIterator

import pytest

from noonday.intake.worker_queries import WorkerQueries
from noonday.model.errors import Forbidden
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from tests.intake.parts import ANN, OLGA, STRANGER, Parts, parts_in_memory
from tests.support.factories import HANDLER, NOW_MS, POOL, SECOND, WORKER, instant, report


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with parts_in_memory() as parts:
        yield parts


@pytest.fixture
def workers(parts: Parts) -> WorkerQueries:
    return WorkerQueries(workload=parts.store.workload, clock=parts.clock, live=lambda: {"tickAgeMs": 7})


async def test_worker_is_listed_with_its_pools_and_what_it_runs(parts: Parts, workers: WorkerQueries) -> None:
    await parts.add_worker()
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.STARTED))
    (view,) = await workers.list_workers(ANN)
    assert (view.worker_id, view.pools, view.state, view.last_seen_at) == (
        WORKER,
        {POOL: 4},
        "ALIVE",
        instant(NOW_MS),
    )
    assert [(each.execution_id, each.handler) for each in view.running] == [(dispatch.execution_id, HANDLER)]


async def test_runs_of_other_tenants_are_not_shown(parts: Parts, workers: WorkerQueries) -> None:
    await parts.add_worker()
    dispatch = await parts.fire(await parts.add())
    await parts.crank.settle(report(dispatch, Outcome.STARTED))
    (view,) = await workers.list_workers(STRANGER)
    assert view.running == ()


async def test_only_operators_see_hosts_and_processes(parts: Parts, workers: WorkerQueries) -> None:
    await parts.add_worker()
    (to_ann,), (to_olga,) = await workers.list_workers(ANN), await workers.list_workers(OLGA)
    assert (to_ann.host, to_ann.pid) == (None, None)
    assert (to_olga.host, to_olga.pid) == ("build-7", 4711)


async def test_overview_counts_what_is_due_running_and_dead(parts: Parts, workers: WorkerQueries) -> None:
    running = await parts.fire(await parts.add())
    await parts.crank.settle(report(running, Outcome.STARTED))
    await parts.bury(await parts.add())
    await parts.add()
    parts.clock.advance(3)
    figures = await workers.overview(ANN)
    assert {name: figures[name] for name in ("due", "running", "deadLetters")} == {
        "due": 1,
        "running": 1,
        "deadLetters": 1,
    }
    assert figures["oldestDueAgeMs"] == 3 * SECOND


async def test_overview_of_a_tenant_leaves_out_others_and_what_is_measured_for_all(
    parts: Parts, workers: WorkerQueries
) -> None:
    await parts.add(tenant=TenantId("globex"))
    figures = await workers.overview(ANN)
    assert (figures["due"], figures["oldestDueAgeMs"], figures["ratePerSec"]) == (0, 0, None)


async def test_overview_of_all_tenants_needs_an_operator(parts: Parts, workers: WorkerQueries) -> None:
    await parts.add(tenant=TenantId("globex"))
    with pytest.raises(Forbidden):
        await workers.overview(ANN, all_tenants=True)
    assert (await workers.overview(OLGA, all_tenants=True))["due"] == 1


async def test_figures_of_the_running_engine_replace_unknown_ones(workers: WorkerQueries) -> None:
    assert (await workers.overview(ANN))["tickAgeMs"] == 7
