"""Pauses of a tenant, a pool or everything: the fire itself refuses paused entries."""

import asyncio

import pytest

from noonday.model.batch import FireRequest
from noonday.model.execution import Outcome
from noonday.model.ids import TenantId
from noonday.model.job import Concurrency, JobSpec, Overlap, Target
from noonday.model.pause import Pause
from noonday.model.view import TenantSettings
from tests.support.crank import Crank
from tests.support.factories import HANDLER, MINUTE, NOW_MS, POOL, TENANT, audit, every, job, report, spec

OTHER = TenantId("other")
PAUSES = [("TENANT", TENANT), ("POOL", POOL), ("ALL", "")]


async def pause(crank: Crank, kind: str, name: str) -> None:
    await crank.store.settings_store.add_pause(Pause(kind, name, crank.now_ms, "ann"), audit())


async def resume(crank: Crank, kind: str, name: str) -> None:
    await crank.store.settings_store.remove_pause(kind, name, audit())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), PAUSES)
@pytest.mark.parametrize(
    "of",
    [
        spec(),
        spec(start_deadline_sec=600),
        spec(concurrency=Concurrency("k", 1)),
        spec(concurrency=Concurrency("k", 1, ordered=True)),
        every(60),
        every(60, overlap=Overlap.SKIP),
    ],
    ids=["plain", "deadline", "key", "ordered", "recurring", "overlap"],
)
async def test_fire_refuses_paused_entries(crank: Crank, kind: str, name: str, of: JobSpec) -> None:
    await crank.add(job(of))
    await pause(crank, kind, name)
    entries = await crank.due()
    fired = await crank.fire()
    assert (fired.dispatches, fired.paused, fired.refused, fired.lost) == ((), 1, 0, ())
    assert list(fired.entries) == entries == await crank.due()
    await resume(crank, kind, name)
    assert len((await crank.fire()).dispatches) == 1


@pytest.mark.parametrize(("kind", "name"), PAUSES)
async def test_fire_refuses_a_retry_of_a_paused_pool(crank: Crank, kind: str, name: str) -> None:
    await crank.add(job())
    dispatch = await crank.fire_one()
    await crank.settle(report(dispatch, Outcome.SNOOZED, snooze_ms=1_000))
    await pause(crank, kind, name)
    assert (await crank.fire(at_ms=NOW_MS + MINUTE)).dispatches == ()
    await resume(crank, kind, name)
    assert (await crank.fire_one()).number == 2


@pytest.mark.parametrize(("kind", "name"), PAUSES[:2])
async def test_fire_of_a_mixed_batch_dispatches_entries_that_are_not_paused(crank: Crank, kind: str, name: str) -> None:
    elsewhere = Target("elsewhere", HANDLER)
    paused = [job(), job(every(60)), job(spec(concurrency=Concurrency("k", 1)))]
    others = [
        job(spec(target=elsewhere), tenant=OTHER),
        job(every(60, target=elsewhere), tenant=OTHER),
        job(spec(target=elsewhere, concurrency=Concurrency("k", 1)), tenant=OTHER),
    ]
    await crank.add(*paused)
    await crank.add(*others)
    await pause(crank, kind, name)
    fired = await crank.fire()
    assert {dispatch.job_id for dispatch in fired.dispatches} == {each.id for each in others}
    assert fired.paused == 3


async def test_fire_refuses_paused_entries_behind_a_cap(crank: Crank) -> None:
    await crank.store.settings_store.put_tenant(TENANT, TenantSettings(max_running=5), audit())
    await crank.add(*[job() for _ in range(3)])
    await pause(crank, "POOL", POOL)
    assert (await crank.fire()).dispatches == ()
    await resume(crank, "POOL", POOL)
    assert len((await crank.fire()).dispatches) == 3


async def test_nothing_created_after_a_pause_is_dispatched_by_concurrent_fires(crank: Crank) -> None:
    """Fires run beside the pause. None of them dispatches a job that is created after the pause was stored."""
    before = [job() for _ in range(30)]
    await crank.add(*before)
    late = [job() for _ in range(5)]
    dispatched: list[str] = []
    stored = asyncio.Event()

    async def fire_again_and_again() -> None:
        while not stored.is_set() or await crank.due():
            entries = (await crank.due())[:2]
            fired = await crank.store.firing.fire(crank.owner, [FireRequest(entry) for entry in entries], NOW_MS)
            dispatched.extend(dispatch.job_id for dispatch in fired.dispatches)
            if stored.is_set() and not fired.dispatches:
                return

    firing = asyncio.create_task(fire_again_and_again())
    await pause(crank, "POOL", POOL)
    await crank.add(*late)
    stored.set()
    await firing
    assert not {each.id for each in late} & set(dispatched)
