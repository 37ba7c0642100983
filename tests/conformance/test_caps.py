"""Caps on the number of executions that a tenant, a pool, or a tenant in a pool has dispatched at the same time."""

import asyncio
from collections import Counter
from random import Random
from typing import ClassVar

import pytest

from noonday.model.change import Change
from noonday.model.execution import OPEN, Outcome
from noonday.model.firing import Fire
from noonday.model.ids import TenantId
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, Job, Target
from noonday.model.message import Dispatch, Report
from noonday.model.slots import NOBODY, OF_TENANT, SlotKey, Slots, of_key, of_pool, of_tenant_in
from noonday.model.view import PoolSettings, TenantInPool, TenantSettings
from tests.support.crank import Crank
from tests.support.factories import (
    HANDLER,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    audit,
    every,
    failure,
    job,
    report,
    spec,
)

OTHER = TenantId("other")
TENANTS_CAP: SlotKey = (TENANT, OF_TENANT)


async def cap(crank: Crank, tenant: TenantId = TENANT, /, **settings: object) -> None:
    await crank.store.settings_store.put_tenant(tenant, TenantSettings(**settings), audit())  # type: ignore[arg-type]


async def cap_pool(crank: Crank, pool: str, most: int | None) -> None:
    await crank.store.settings_store.put_pool(pool, PoolSettings(max_running=most), audit())


async def slots(crank: Crank, key: SlotKey = TENANTS_CAP) -> Slots | None:
    return (await crank.store.settings_store.slots([key])).get(key)


async def one_shots(crank: Crank, count: int, **fields: object) -> list[Job]:
    jobs = [job(**fields) for _ in range(count)]  # type: ignore[arg-type]
    await crank.add(*jobs)
    return jobs


@pytest.mark.slow
@pytest.mark.also_threaded
async def test_no_more_is_fired_than_the_cap_allows_and_the_rest_waits(crank: Crank) -> None:
    await cap(crank, max_running=3)
    await one_shots(crank, 5)
    fired = await crank.fire()
    assert len(fired.dispatches) == 3
    assert len(fired.entries) == len(await crank.due()) == 2
    assert (fired.refused, fired.blocked) == (0, ())
    assert (await crank.fire()).dispatches == ()
    assert await slots(crank) == Slots(3, 3)


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SNOOZED, Outcome.HANDED_BACK])
async def test_slot_is_freed_by_every_outcome(crank: Crank, outcome: Outcome) -> None:
    await cap(crank, max_running=1)
    await one_shots(crank, 2)
    (first,) = (await crank.fire()).dispatches
    await crank.settle(report(first, outcome, failure=failure(), snooze_ms=MINUTE))
    assert await slots(crank) == Slots(0, 1)
    (second,) = (await crank.fire()).dispatches
    assert await slots(crank) == Slots(1, 1)
    await crank.settle(report(second))
    assert await slots(crank) == Slots(0, 1)


async def test_a_success_that_is_reported_twice_frees_one_slot(crank: Crank) -> None:
    await cap(crank, max_running=5)
    await one_shots(crank, 2)
    first, _ = (await crank.fire()).dispatches
    await crank.settle(report(first))
    await crank.settle(report(first))
    assert await slots(crank) == Slots(1, 5)


async def test_successes_of_several_tenants_and_failures_in_one_batch_free_theirs(crank: Crank) -> None:
    await cap(crank, max_running=10)
    await cap(crank, OTHER, max_running=10)
    await cap_pool(crank, POOL, 10)
    await one_shots(crank, 4)
    await one_shots(crank, 3, tenant=OTHER)
    dispatches = (await crank.fire()).dispatches
    assert await slots(crank, (NOBODY, of_pool(POOL))) == Slots(7, 10)
    ours = [d for d in dispatches if d.tenant == TENANT]
    theirs = [d for d in dispatches if d.tenant == OTHER]
    await crank.settle(
        *[report(d) for d in (*ours[:2], *theirs[:2])], *[report(ours[2], Outcome.FAILED, failure=failure())]
    )
    assert await slots(crank) == Slots(1, 10)
    assert await slots(crank, (OTHER, OF_TENANT)) == Slots(1, 10)
    assert await slots(crank, (NOBODY, of_pool(POOL))) == Slots(2, 10)


async def test_a_pools_cap_is_for_all_tenants_together(crank: Crank) -> None:
    await cap_pool(crank, POOL, 3)
    await one_shots(crank, 2)
    await one_shots(crank, 2, tenant=OTHER)
    assert len((await crank.fire()).dispatches) == 3


async def test_a_cap_in_one_pool_leaves_the_others_alone(crank: Crank) -> None:
    await cap(crank, max_running=4, pools={POOL: TenantInPool(max_running=1)})
    await one_shots(crank, 3)
    await one_shots(crank, 5, of=spec(target=Target("elsewhere", HANDLER)))
    fired = await crank.fire()
    assert Counter(d.pool for d in fired.dispatches) == {POOL: 1, "elsewhere": 3}
    assert await slots(crank) == Slots(4, 4)
    assert await slots(crank, (TENANT, of_tenant_in(POOL))) == Slots(1, 1)


async def test_schedules_and_retries_count_too(crank: Crank) -> None:
    await cap(crank, max_running=2)
    cron = job(every(60))
    await crank.add(cron, job(), job())
    fired = await crank.fire()
    assert len(fired.dispatches) == 2
    await crank.settle(*[report(d, Outcome.HANDED_BACK) for d in fired.dispatches])
    assert await slots(crank) == Slots(0, 2)
    again = await crank.fire(at_ms=crank.now_ms + 30 * SECOND)
    assert len(again.dispatches) == 2
    assert len(await crank.due()) == 1


async def test_missed_occurrences_fire_as_slots_become_free(crank: Crank) -> None:
    await cap(crank, max_running=2)
    cron = job(every(1, catch_up=CatchUp(CatchUpPolicy.ALL, 3_600)))
    await crank.add(cron)
    crank.now_ms += 10 * SECOND
    for _ in range(5):
        fired = await crank.fire()
        assert len(fired.dispatches) == 2
        assert await slots(crank) == Slots(2, 2)
        await crank.settle(*[report(d, ended_ms=crank.now_ms) for d in fired.dispatches])
    states = await crank.states_of(cron)
    assert states == ["SUCCEEDED"] * 10


async def test_key_and_cap_are_enforced_together(crank: Crank) -> None:
    await cap(crank, max_running=3)
    await one_shots(crank, 4, of=spec(concurrency=Concurrency("k", 2)))
    fired = await crank.fire()
    assert len(fired.dispatches) == 2
    assert len(fired.blocked) == 2
    assert (await crank.look(fired.dispatches[0])).slots == (of_key("k"), OF_TENANT)
    await one_shots(crank, 4)
    assert len((await crank.fire()).dispatches) == 1
    await crank.settle(report(fired.dispatches[0]))
    assert await slots(crank) == Slots(2, 3)
    assert await slots(crank, (TENANT, of_key("k"))) == Slots(1, None)


async def test_dispatched_executions_count_against_a_cap_that_is_set_later(crank: Crank) -> None:
    await one_shots(crank, 5)
    early = (await crank.fire()).dispatches
    await cap(crank, max_running=6)
    assert await slots(crank) == Slots(5, 6)
    await cap(crank, max_running=6)
    assert await slots(crank) == Slots(5, 6)
    await one_shots(crank, 5)
    assert len((await crank.fire()).dispatches) == 1
    await crank.settle(*map(report, early))
    assert await slots(crank) == Slots(1, 6)


async def test_a_cap_that_is_lowered_or_taken_away_ends_nothing(crank: Crank) -> None:
    await cap(crank, max_running=4)
    await one_shots(crank, 6)
    dispatched = (await crank.fire()).dispatches
    await cap(crank, max_running=1)
    assert await slots(crank) == Slots(4, 1)
    assert (await crank.fire()).dispatches == ()
    await crank.settle(report(dispatched[0]))
    assert (await crank.fire()).dispatches == ()
    await cap(crank)
    assert await slots(crank) == Slots(3, None)
    rest = (await crank.fire()).dispatches
    assert len(rest) == 2
    await crank.settle(*map(report, (*dispatched[1:], *rest)))
    assert await slots(crank) is None


async def test_a_cap_of_nothing_lets_nothing_start(crank: Crank) -> None:
    await cap(crank, max_running=0)
    await one_shots(crank, 2)
    assert (await crank.fire()).dispatches == ()
    await cap(crank, max_running=1)
    assert len((await crank.fire()).dispatches) == 1


async def test_pools_that_have_a_cap_are_known(crank: Crank) -> None:
    await cap_pool(crank, "a:b", 3)
    await cap_pool(crank, "c", None)
    await cap(crank, pools={"d": TenantInPool(max_running=1)})
    assert await crank.store.settings_store.capped_pools() == ["a:b"]
    await cap_pool(crank, "a:b", None)
    assert await crank.store.settings_store.capped_pools() == []


async def test_an_occurrence_that_has_an_execution_takes_no_slot(crank: Crank) -> None:
    await cap(crank, max_running=2)
    one = job(every())
    await crank.add(one)
    await crank.settle(report(await crank.fire_one()))
    await crank.change(one, Change(fire=Fire(NOW_MS, NOW_MS)))
    await crank.fire(await crank.due())
    assert await slots(crank) == Slots(0, 2)
    again = job()
    await crank.add(again)
    await crank.settle(report(await crank.fire_one()))
    await crank.change(again, Change(fire=Fire(NOW_MS, NOW_MS)))
    await crank.fire(await crank.due())
    assert await slots(crank) == Slots(0, 2)


class RandomHistory:
    """Random histories of jobs of two tenants in two pools, with caps on everything."""

    CAPS: ClassVar[dict[SlotKey, int]] = {
        (TENANT, OF_TENANT): 5,
        (TENANT, of_tenant_in(POOL)): 2,
        (OTHER, OF_TENANT): 3,
        (NOBODY, of_pool(POOL)): 4,
    }

    def __init__(self, crank: Crank, seed: int) -> None:
        self.crank = crank
        self.random = Random(seed)
        self.dispatched: dict[str, Dispatch] = {}
        self.jobs: list[Job] = []

    async def begin(self) -> None:
        await cap(self.crank, max_running=5, pools={POOL: TenantInPool(max_running=2)})
        await cap(self.crank, OTHER, max_running=3)
        await cap_pool(self.crank, POOL, 4)

    async def turn(self) -> None:
        random, crank = self.random, self.crank
        crank.now_ms += random.randrange(SECOND)
        new = [self.any_job() for _ in range(random.randrange(6))]
        await crank.add(*new)
        self.jobs += new
        await self.check()
        self.dispatched |= {d.execution_id: d for d in (await crank.fire()).dispatches}
        await self.check()
        if random.random() < 0.1:
            await crank.store.firing.requeue_orphans(crank.now_ms, 3, crank.now_ms)
            await self.check()
        chosen = [d for d in self.dispatched.values() if random.random() < 0.3]
        await crank.settle(*[self.anything(d, random.choice(list(Outcome))) for d in chosen])
        await self.check()

    def any_job(self) -> Job:
        random = self.random
        target = Target(random.choice([POOL, "elsewhere"]), HANDLER)
        tenant = random.choice([TENANT, OTHER])
        if random.random() < 0.7:
            key = Concurrency("k", 2) if random.random() < 0.2 else None
            return job(spec(target=target, concurrency=key), tenant=tenant, now_ms=self.crank.now_ms)
        return job(every(random.choice([1, 3]), target=target, max_runs=5), tenant=tenant, now_ms=self.crank.now_ms)

    def anything(self, dispatch: Dispatch, outcome: Outcome) -> Report:
        now_ms = self.crank.now_ms
        return report(dispatch, outcome, failure=failure(), snooze_ms=SECOND, started_ms=now_ms, ended_ms=now_ms)

    async def check(self) -> None:
        held: Counter[SlotKey] = Counter()
        for one in self.jobs:
            for each in await self.crank.all_of(one):
                assert bool(each.slots) <= (each.state in OPEN and each.fired_ms is not None)
                if each.state in OPEN and each.fired_ms is not None:
                    held.update(
                        {(one.tenant, OF_TENANT), (one.tenant, of_tenant_in(each.pool)), (NOBODY, of_pool(each.pool))}
                    )
        counted = await self.crank.store.settings_store.slots(list(self.CAPS))
        for key, most in self.CAPS.items():
            assert counted[key] == Slots(held[key], most)
            assert held[key] <= most


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_caps_and_counters_hold_in_random_histories(crank: Crank, seed: int) -> None:
    history = RandomHistory(crank, seed)
    await history.begin()
    for _ in range(25):
        await history.turn()
    assert "SUCCEEDED" in {state for one in history.jobs for state in await crank.states_of(one)}


async def test_concurrent_fires_share_the_free_slots(crank: Crank) -> None:
    await cap(crank, max_running=7)
    await one_shots(crank, 20)
    crons = [job(every(60)) for _ in range(10)]
    await crank.add(*crons)
    due = await crank.due()
    fired = await asyncio.gather(*[crank.fire(due[at::5]) for at in range(5)])
    assert sum(len(each.dispatches) for each in fired) == 7
    assert await slots(crank) == Slots(7, 7)
