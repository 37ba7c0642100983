"""Rounds of a dispatcher over a store in memory: what is due reaches its pool, and its batch is sealed."""

from collections.abc import AsyncIterator, Sequence

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.intake import edits
from noonday.model.budget import EntryBudget
from noonday.model.errors import BusUnavailable
from noonday.model.execution import State
from noonday.model.ids import InstanceId
from noonday.model.job import Concurrency, Job, Overlap
from noonday.model.message import Dispatch, Oversized
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.scheduler.allowances import Allowances
from noonday.scheduler.dispatcher import (
    MIN_BATCH,
    PATIENCE_MS,
    SEAL_SEC,
    TARGET_BATCH_SEC,
    AdaptiveBatchSize,
    Dispatcher,
)
from noonday.scheduler.in_flight import InFlight
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.publishing import Publisher
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import MINUTE, NOW_MS, POOL, SECOND, WORKER, audit, every, job, report, spec


class AwayBus(MemoryBus):
    """Refuses dispatches while it is away."""

    is_away = False

    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        if self.is_away:
            raise BusUnavailable("away")
        return await super().publish(dispatches)


class Bench:
    """A dispatcher that owns everything. The test places entries and turns the rounds."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.clock, self.metrics = store, ManualClock(NOW_MS - SECOND), Metrics()
        self.clock.advance(1)
        self.crank = Crank(store)  # type: ignore[arg-type]
        self.index, self.bus, self.signals = MemoryHotIndex(0), AwayBus(self.clock), MemorySignals()
        self.ownership = Ownership(
            InstanceId("i-1"), LocalLeases(None, self.clock), store.firing, self.index, self.bus, self.clock
        )
        in_flight = InFlight()
        self.dispatcher = Dispatcher(
            ownership=self.ownership,
            allowances=Allowances(store.settings_store, MemoryTokens(), self.index, self.clock, in_flight),
            in_flight=in_flight,
            firing=store.firing,
            index=self.index,
            bus=self.bus,
            signals=self.signals,
            clock=self.clock,
            metrics=self.metrics,
            publisher=Publisher(self.bus, store.endpoints, Tracing(None), self.clock),
            batch=100,
            hint_ahead_ms=10 * MINUTE,
            budget=EntryBudget(),
        )

    async def open(self) -> None:
        await self.ownership.join()
        await self.bus.join(WORKER, {POOL: 10})

    async def add(self, *jobs: Job) -> None:
        """Store jobs and place their entries on the hot index."""
        await self.crank.add(*jobs)
        await self.index.add(await self.crank.timeline())

    async def round(self) -> int:
        """Run one round to its end. Returns how many entries it claimed."""
        claimed = await self.dispatcher.run_once(self.clock.now_ms())
        await self.dispatcher.drain()
        return claimed

    async def published(self) -> list[Dispatch]:
        return await self.bus.take(WORKER, {POOL: 100}, 0)

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    bench = Bench(store)
    await bench.open()
    yield bench
    await store.close()


async def test_due_job_is_published_to_its_pool_and_its_batch_is_sealed(bench: Bench) -> None:
    one = job()
    await bench.add(one)
    assert await bench.round() == 1
    (dispatch,) = await bench.published()
    assert (dispatch.job_id, dispatch.number, dispatch.due_ms) == (one.id, 1, NOW_MS)
    assert await bench.store.firing.unsealed(NOW_MS + MINUTE, 10) == []
    assert bench.counted("noonday_decisions_total", outcome="FIRED") == 1


async def test_job_whose_time_has_not_come_is_left_alone(bench: Bench) -> None:
    await bench.add(job(spec(), now_ms=NOW_MS + MINUTE))
    assert await bench.round() == 0
    bench.clock.advance(60)
    assert await bench.round() == 1


async def test_next_time_of_a_schedule_is_placed_on_the_index(bench: Bench) -> None:
    await bench.add(job(every(60)))
    await bench.round()
    bench.clock.advance(60)
    assert await bench.round() == 1
    assert [dispatch.nominal_ms for dispatch in await bench.published()] == [NOW_MS, NOW_MS + MINUTE]


async def test_nothing_is_claimed_for_a_pool_without_workers(bench: Bench) -> None:
    await bench.bus.leave(WORKER)
    await bench.add(job())
    assert await bench.round() == 0
    assert bench.index.size() == 1


async def test_batch_that_cannot_be_published_stays_unsealed(bench: Bench) -> None:
    """The sweeper publishes it again. Its entries are not fired a second time."""
    bench.bus.is_away = True
    await bench.add(job())
    assert await bench.round() == 1
    (batch,) = await bench.store.firing.unsealed(NOW_MS + MINUTE, 10)
    assert len(await bench.store.firing.dispatches_of(batch)) == 1
    bench.bus.is_away = False
    assert await bench.round() == 0


async def test_entry_that_a_key_blocks_is_tried_again_when_its_slot_is_free(bench: Bench) -> None:
    first, second = (job(spec(concurrency=Concurrency("db", 1))) for _ in range(2))
    await bench.add(first, second)
    await bench.round()
    (running,) = await bench.published()
    (blocked,) = [entry for entry in await bench.crank.timeline() if bench.dispatcher.tracks(entry)]
    settled = await bench.crank.settle(report(running))
    bench.dispatcher.release_blocked(settled.freed)
    assert not await bench.published()
    await bench.round()
    assert [dispatch.job_id for dispatch in await bench.published()] == [blocked.key]


async def test_stale_entry_is_counted_and_fires_nothing(bench: Bench) -> None:
    one = job(every(60))
    await bench.add(one)
    await bench.crank.change(one, lambda before: edits.pause(before, NOW_MS, audit()))
    assert await bench.round() == 1
    assert await bench.published() == []
    assert bench.counted("noonday_refused_total", kind="entry") == 1


async def test_instance_whose_epoch_is_refused_drops_its_partitions(bench: Bench) -> None:
    await bench.add(job())
    await bench.crank.own(InstanceId("i-2"))
    await bench.round()
    assert await bench.published() == []
    assert list(bench.ownership.partitions) == []


async def test_execution_that_cancel_other_ends_is_revoked_for_workers(bench: Bench) -> None:
    await bench.signals.begin_generation(POOL)
    await bench.add(job(every(60, overlap=Overlap.CANCEL_OTHER)))
    await bench.round()
    (running,) = await bench.published()
    bench.clock.advance(60)
    await bench.round()
    assert await bench.signals.pre_start_check(POOL, [running]) == {running.execution_id: "overlap CANCEL_OTHER"}
    assert (await bench.crank.look(running)).state is State.PENDING


async def test_batches_are_sealed_together_at_most_every_half_second(bench: Bench) -> None:
    bench.clock.advance(SEAL_SEC)
    for _ in range(2):
        await bench.add(job())
        await bench.dispatcher.run_once(bench.clock.now_ms())
        while bench.counted("noonday_in_flight_entries"):
            await bench.clock.sleep(0)
    bench.clock.advance(SEAL_SEC)
    await bench.dispatcher.run_once(bench.clock.now_ms())
    assert await bench.store.firing.unsealed(NOW_MS + MINUTE, 10) == []


async def test_dispatcher_waits_until_the_next_entry_is_due(bench: Bench) -> None:
    await bench.add(job(spec(overlap=Overlap.SKIP), now_ms=NOW_MS + 200))
    assert await bench.dispatcher.next_wait() == pytest.approx(0.2)


async def test_entries_that_may_be_early_are_collected_a_little_longer(bench: Bench) -> None:
    await bench.add(job(spec(), now_ms=NOW_MS + 200))
    assert await bench.dispatcher.next_wait() == pytest.approx(0.2 + PATIENCE_MS / 1000)


def test_batch_size_falls_when_the_store_is_slow_and_rises_again() -> None:
    size = AdaptiveBatchSize(2_000)
    size.note(2_000, 2 * TARGET_BATCH_SEC)
    assert size.size == 1_000
    size.note(1_000, TARGET_BATCH_SEC / 4)
    assert size.size == 2_000


def test_batch_size_never_falls_below_the_minimum() -> None:
    size = AdaptiveBatchSize(2_000)
    for _ in range(20):
        size.note(size.size, 100.0)
    assert size.size == MIN_BATCH


def test_small_batch_says_nothing_about_the_size() -> None:
    size = AdaptiveBatchSize(2_000)
    size.note(10, 100.0)
    assert size.size == 2_000
