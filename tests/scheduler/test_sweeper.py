from collections.abc import AsyncIterator, Sequence

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.batch import Batch
from noonday.model.errors import BusUnavailable
from noonday.model.fence import ORPHANED_AFTER_MS
from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS, InstanceId
from noonday.model.message import Dispatch, Oversized
from noonday.runtime.tracing import Tracing
from noonday.scheduler.publishing import Publisher
from noonday.scheduler.sweeper import BATCHES, Sweeper
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import NOW_MS, POOL, WORKER, job

HOUR = 3_600_000


class Everything:
    """Owns all partitions, and may adopt the batches of instances that are gone."""

    partitions = range(PARTITIONS)

    def may_adopt(self, owner: InstanceId, age_ms: int) -> bool:
        return owner != "alive"


class Choosy(MemoryBus):
    """Refuses some executions, for a temporary reason."""

    def __init__(self, clock: ManualClock, refuses: set[str]) -> None:
        super().__init__(clock)
        self.refuses = refuses

    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        if any(each.execution_id in self.refuses for each in dispatches):
            raise BusUnavailable("its topic has no leader")
        return await super().publish(dispatches)


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


def sweeper_on(store: SqliteStore, bus: MemoryBus, clock: ManualClock) -> Sweeper:
    return Sweeper(
        firing=store.firing,
        executions=store.executions,
        index=MemoryHotIndex(0),
        publisher=Publisher(bus, store.endpoints, Tracing(None), clock),
        ownership=Everything(),  # type: ignore[arg-type]
        is_tracked=lambda entry: False,
        grace_ms=1,
    )


async def fire_alone(crank: Crank, number: int, instance: str = "gone") -> Dispatch:
    """Fire one execution in a batch of its own, as an instance of that name."""
    await crank.own(InstanceId(instance))
    await crank.add(job(id=f"00000000-0000-7000-8000-{number:012x}"))
    return await crank.fire_one()


async def published(bus: MemoryBus) -> set[str]:
    await bus.join(WORKER, {POOL: 1_000})
    return {each.execution_id for each in await bus.take(WORKER, {POOL: 1_000}, 0)}


async def test_a_batch_that_cannot_be_published_keeps_no_other_from_being_adopted(store: SqliteStore) -> None:
    crank = Crank(store)  # type: ignore[arg-type]
    first, second = [await fire_alone(crank, number) for number in range(2)]
    clock = ManualClock()
    bus = Choosy(clock, {first.execution_id})
    sweeper = sweeper_on(store, bus, clock)
    with pytest.raises(BusUnavailable):
        await sweeper.run_once(NOW_MS + HOUR)
    assert await published(bus) == {second.execution_id}
    bus.refuses.clear()
    await sweeper.run_once(NOW_MS + HOUR)
    assert await published(bus) == {first.execution_id}
    assert await store.firing.unsealed(NOW_MS + HOUR, 10) == []


@pytest.mark.slow
async def test_batches_that_are_not_ours_hide_none_behind_them(store: SqliteStore) -> None:
    crank = Crank(store)  # type: ignore[arg-type]
    for number in range(BATCHES + 1):
        await fire_alone(crank, number, "alive")
    orphan = await fire_alone(crank, BATCHES + 1)
    clock = ManualClock()
    bus = MemoryBus(clock)
    sweeper = sweeper_on(store, bus, clock)
    for _ in range(2):
        await sweeper.run_once(NOW_MS + HOUR)
    assert await published(bus) == {orphan.execution_id}


async def test_a_duty_that_fails_keeps_no_other_from_its_turn(store: SqliteStore) -> None:
    crank = Crank(store)  # type: ignore[arg-type]
    fired = await fire_alone(crank, 1)
    clock = ManualClock()
    bus = Choosy(clock, {fired.execution_id})
    sweeper = sweeper_on(store, bus, clock)
    requeued: list[int] = []

    async def requeue(fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool) -> list[object]:
        requeued.append(fired_before_ms)
        return []

    async def tick() -> int:
        return NOW_MS + HOUR

    store.firing.requeue_orphans = requeue  # type: ignore[assignment,method-assign]
    store.executions.oldest_tick_ms = tick  # type: ignore[method-assign]
    with pytest.raises(BusUnavailable):
        await sweeper.run_once(NOW_MS + HOUR)
    assert requeued


class Casting:
    """A store with ticks alone, which notes calls of orphan recovery."""

    def __init__(self) -> None:
        self.tick_ms = NOW_MS
        self.casts: list[int] = []

    async def walk(self, *of: object) -> list[Entry]:
        return []

    async def unsealed(self, *of: object) -> list[Batch]:
        return []

    async def oldest_tick_ms(self) -> int:
        return self.tick_ms

    async def requeue_orphans(
        self, fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool = True
    ) -> list[Entry]:
        self.casts.append(self.tick_ms)
        return []


async def test_orphan_recovery_goes_on_minutes_after_the_clock_was_a_day_ahead(store: SqliteStore) -> None:
    casting = Casting()
    sweeper = Sweeper(
        firing=casting,  # type: ignore[arg-type]
        executions=casting,  # type: ignore[arg-type]
        index=MemoryHotIndex(0),
        publisher=Publisher(MemoryBus(ManualClock()), store.endpoints, Tracing(None), ManualClock()),
        ownership=Everything(),  # type: ignore[arg-type]
        is_tracked=lambda entry: False,
        grace_ms=1,
    )

    async def tick_for(seconds: int) -> None:
        for _ in range(0, seconds, 5):
            casting.tick_ms += 5_000
            await sweeper.run_once(casting.tick_ms)

    await tick_for(600)
    assert casting.casts
    casting.tick_ms += 24 * HOUR
    await tick_for(600)
    casting.tick_ms -= 24 * HOUR
    casting.casts.clear()
    await tick_for(ORPHANED_AFTER_MS // 1000 - 30)
    assert casting.casts == [], "the workers have had no time to report"
    await tick_for(90)
    assert casting.casts
