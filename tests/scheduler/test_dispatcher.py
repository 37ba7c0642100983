"""Batches in flight: they overlap, name the same entry twice, fail, and leave nothing behind."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.batch import FireRequest, FireResult, Owner
from noonday.model.errors import StoreUnavailable
from noonday.model.ids import PARTITIONS, InstanceId
from noonday.model.job import Concurrency, Target
from noonday.model.pause import Pause
from noonday.model.view import PoolSettings
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.scheduler.dispatcher import STUCK_SEC
from noonday.wiring.embedded import drivers_on
from noonday.wiring.roles.role import ProcessContext
from noonday.wiring.roles.scheduler import SchedulerRole
from noonday.wiring.settings import Settings
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.drivers import execute
from tests.support.factories import HANDLER, POOL, WORKER, audit, every, job, report, spec


class GatedFiring:
    """A store whose fires wait until the test releases them, or fail."""

    def __init__(self, store: SqliteStore) -> None:
        self._firing = store.firing
        self.gates: list[asyncio.Future[None]] = []
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._firing, name)

    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        if not self.is_open:
            gate = asyncio.get_running_loop().create_future()
            self.gates.append(gate)
            await gate
        return await self._firing.fire(owner, firings, now_ms)

    def open(self) -> None:
        self.is_open = True
        for gate in self.gates:
            if not gate.done():
                gate.set_result(None)
        self.gates.clear()


class Scheduler:
    """A scheduler on a store in memory, turned by hand."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.crank = Crank(store)
        self.firing = GatedFiring(store)
        settings = Settings(data=MEMORY)
        drivers = drivers_on(store, LocalLeases(None, self.clock), Keyring.generate(), self.clock, settings)
        self.drivers = replace(drivers, firing=self.firing)  # type: ignore[arg-type]
        self.metrics = Metrics()
        around = ProcessContext(InstanceId("i-1"), settings, self.metrics, Tracing(None))
        self.role = SchedulerRole(self.drivers, around, shares_partitions=False)
        self.dispatcher = self.role.dispatcher

    async def start(self) -> None:
        await self.role.ownership.join()
        await self.drivers.bus.join(WORKER, {POOL: 1_000, "elsewhere": 1_000})

    async def turn(self, name: str) -> int:
        return await self.role.loops[name].service.run_once(self.clock.now_ms())

    async def claim(self) -> int:
        """Claim a batch, and let it reach the store."""
        claimed = await self.turn("dispatcher")
        await self.settle_down()
        return claimed

    async def settle_down(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def add_jobs(self, count: int, pool: str = POOL) -> None:
        await self.crank.add(*[job(spec(target=Target(pool, HANDLER))) for _ in range(count)])

    async def cap(self, pool: str, most: int | None) -> None:
        await self.store.settings_store.put_pool(pool, PoolSettings(max_running=most), audit())
        await self.turn("tenants")

    async def place_again(self) -> None:
        """Add all entries of the timeline, as a late hint does."""
        await self.drivers.index.add(await self.crank.timeline())

    async def in_hand(self) -> list[str]:
        return [entry.key for entry in await self.crank.timeline() if self.dispatcher.tracks(entry)]

    async def run_all(self) -> int:
        """Fire and finish everything in pool `etl`. Returns the number of dispatches."""
        self.firing.open()
        await self.dispatcher.drain()
        ran = 0
        for _ in range(200):
            self.clock.advance(3)
            await self.turn("tenants")
            await self.turn("sweeper")
            await self.turn("dispatcher")
            await self.dispatcher.drain()
            taken = await self.drivers.bus.take(WORKER, {POOL: 1_000}, 0)
            if taken:
                ran += len(taken)
                await self.crank.settle(*[report(dispatch) for dispatch in taken])
                self.dispatcher.release_blocked()
            elif not await self.crank.timeline():
                return ran
        raise AssertionError(f"the scheduler stands still with {len(await self.crank.timeline())} entries due")


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    scheduler = Scheduler(store)
    await scheduler.start()
    yield scheduler
    scheduler.firing.open()
    await scheduler.dispatcher.drain()
    await store.close()


async def test_entry_added_again_while_in_flight_leaves_no_count_behind(scheduler: Scheduler) -> None:
    await scheduler.cap("elsewhere", 1)
    await scheduler.add_jobs(3)
    await scheduler.place_again()
    assert await scheduler.claim() == 3
    await scheduler.add_jobs(3)
    await scheduler.place_again()
    assert await scheduler.claim() == 6
    first, second = scheduler.firing.gates
    first.set_result(None)
    await scheduler.settle_down()
    second.set_result(None)
    scheduler.firing.open()
    await scheduler.dispatcher.drain()
    assert scheduler.metrics.registry.get_sample_value("noonday_in_flight_entries") == 0
    await scheduler.cap(POOL, 2)
    await scheduler.add_jobs(4)
    assert await scheduler.in_hand() == []
    assert await scheduler.run_all() == 10


async def test_hydrator_adds_no_entry_that_is_in_flight(scheduler: Scheduler) -> None:
    await scheduler.add_jobs(3)
    await scheduler.turn("hydrator")
    assert await scheduler.claim() == 3
    scheduler.role.walk_again(range(PARTITIONS))
    await scheduler.turn("hydrator")
    assert await scheduler.claim() == 0


async def test_credit_of_a_pool_is_shown_as_it_was_last_measured(scheduler: Scheduler) -> None:
    def shown() -> float | None:
        return scheduler.metrics.registry.get_sample_value("noonday_pool_credit", {"pool": POOL})

    await scheduler.claim()
    before = shown()
    scheduler.firing.open()
    await scheduler.add_jobs(3)
    await scheduler.place_again()
    await scheduler.claim()
    await scheduler.dispatcher.drain()
    await scheduler.claim()
    assert before is not None
    assert shown() == before - 3


async def test_refused_entry_waits_for_the_batch_that_has_it(scheduler: Scheduler) -> None:
    """Not a busy loop: an entry that another batch in flight names is not hinted again."""
    await scheduler.add_jobs(1)
    await scheduler.place_again()
    await scheduler.claim()
    await scheduler.place_again()
    await scheduler.claim()
    first, second = scheduler.firing.gates
    second.set_result(None)
    await scheduler.settle_down()
    assert await scheduler.claim() == 0
    first.set_result(None)


async def test_batch_in_flight_for_too_long_is_a_reason_not_to_be_ready(scheduler: Scheduler) -> None:
    await scheduler.add_jobs(1)
    await scheduler.place_again()
    await scheduler.claim()
    assert scheduler.dispatcher.reasons_not_ready() == []
    scheduler.clock.advance(STUCK_SEC + 1)
    assert scheduler.dispatcher.reasons_not_ready() == [
        "dispatcher: a batch is in flight for 31.0 s (1 entries in all batches)"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
async def test_overlapping_batches_leak_nothing_whatever_happens(scheduler: Scheduler, seed: int) -> None:
    """Three batches overlap, entries are added again, fires fail in any order; then the pool gets a cap and all jobs run."""
    random, added = Random(seed), 0
    await scheduler.cap("elsewhere", 1)
    flights, claiming = 0, None
    for _ in range(30):
        step = random.randrange(6)
        if step == 0:
            await scheduler.add_jobs(count := random.randrange(1, 5))
            added += count
        elif step == 1:
            await scheduler.place_again()
        elif step == 2:
            scheduler.role.walk_again(range(PARTITIONS))
            await scheduler.turn("hydrator")
        elif step in (3, 4) and flights < 2 and (claiming is None or claiming.done()):
            # After a failure the dispatcher waits for each batch.
            claiming = asyncio.create_task(scheduler.turn("dispatcher"))
            before = len(scheduler.firing.gates)
            await scheduler.settle_down()
            flights += len(scheduler.firing.gates) - before
        elif scheduler.firing.gates:
            gate = scheduler.firing.gates.pop(random.randrange(len(scheduler.firing.gates)))
            if random.random() < 0.3:
                gate.set_exception(StoreUnavailable("the store is away"))
            else:
                gate.set_result(None)
            await scheduler.settle_down()
            flights -= 1
    scheduler.firing.open()
    if claiming is not None:
        await asyncio.gather(claiming, return_exceptions=True)
    await scheduler.cap(POOL, 2)
    await scheduler.add_jobs(3)
    assert await scheduler.run_all() == added + 3
    assert scheduler.metrics.registry.get_sample_value("noonday_in_flight_entries") == 0


async def test_unreadable_job_gets_an_error_decision_and_an_incident_alone(scheduler: Scheduler) -> None:
    bad, usual = job(every(60)), job(every(60))
    await scheduler.crank.add(bad, usual)
    await execute(scheduler.store, f"UPDATE jobs SET spec = json_set(spec, '$.overlap', 'NEWER') WHERE id = '{bad.id}'")
    scheduler.firing.open()
    await scheduler.place_again()
    await scheduler.claim()
    await scheduler.dispatcher.drain()
    assert [each.job_id for each in await scheduler.drivers.bus.take(WORKER, {POOL: 9}, 0)] == [usual.id]
    (decision,) = await scheduler.store.query_store.decisions_between(bad.id, 0, 2**60, 10)
    assert decision.outcome == "ERROR"
    assert "NEWER" in decision.reason
    assert [incident.job_id for incident in await scheduler.store.executions.incidents(10)] == [bad.id]
    assert {entry.key for entry in await scheduler.crank.timeline()} == {bad.id, usual.id}


async def test_one_shot_whose_overlap_is_unknown_gets_an_error_decision_alone(scheduler: Scheduler) -> None:
    bad, usual = job(spec(concurrency=Concurrency("k", 1))), job()
    await scheduler.crank.add(bad, usual)
    await execute(scheduler.store, f"UPDATE jobs SET spec = json_set(spec, '$.overlap', 'NEWER') WHERE id = '{bad.id}'")
    scheduler.firing.open()
    await scheduler.place_again()
    await scheduler.claim()
    await scheduler.dispatcher.drain()
    assert [each.job_id for each in await scheduler.drivers.bus.take(WORKER, {POOL: 9}, 0)] == [usual.id]
    (decision,) = await scheduler.store.query_store.decisions_between(bad.id, 0, 2**60, 10)
    assert decision.outcome == "ERROR"


async def test_pause_is_in_effect_before_the_next_look_at_the_settings(scheduler: Scheduler) -> None:
    await scheduler.turn("tenants")
    scheduler.firing.open()
    await scheduler.store.settings_store.add_pause(Pause("POOL", POOL, scheduler.clock.now_ms(), "ann"), audit())
    await scheduler.add_jobs(3)
    await scheduler.place_again()
    assert await scheduler.claim() == 3
    await scheduler.dispatcher.drain()
    assert await scheduler.drivers.bus.take(WORKER, {POOL: 9}, 0) == []
    assert await scheduler.claim() == 0, "the refused entries are claimed over and over"
    await scheduler.store.settings_store.remove_pause("POOL", POOL, audit())
    assert await scheduler.run_all() == 3
