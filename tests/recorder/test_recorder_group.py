"""Recorders share the partitions of the log."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.errors import BusUnavailable, LeasesUnavailable
from noonday.model.ids import InstanceId
from noonday.model.message import LogBatch, LogEntry, Oversized, Tick
from noonday.model.recording import Checkpoint
from noonday.recorder.recorder import Recorder
from noonday.recorder.recorder_group import RecorderGroup
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import job, report
from tests.support.leases import TTL_SEC, LeaseServer, SharedLeases

PARTITIONS = 4


class WideBus(MemoryBus):
    """A bus with several log partitions."""

    is_away = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._logs = [MemoryBus(clock) for _ in range(PARTITIONS)]

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        return await self._logs[partition].report(0, entries)

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        return await self._logs[partition].read(0, offset, limit, wait_sec)

    async def partitions(self) -> int:
        if self.is_away:
            raise BusUnavailable("away")
        return PARTITIONS


class Bench:
    """Instances on one store, one bus and one lease server."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.clock, self.metrics = store, ManualClock(), Metrics()
        self.crank, self.bus, self.server = Crank(store), WideBus(self.clock), LeaseServer(self.clock)  # type: ignore[arg-type]
        self.groups: list[RecorderGroup] = []

    def group(self, name: str) -> RecorderGroup:
        def recorder_of(partition: int) -> Recorder:
            return Recorder(
                instance=InstanceId(name),
                partition=partition,
                executions=self.store.executions,
                endpoints=self.store.endpoints,
                bus=self.bus,
                index=MemoryHotIndex(0),
                signals=MemorySignals(),
                clock=self.clock,
                metrics=self.metrics,
                tracing=Tracing(None),
                hint_ahead_ms=0,
            )

        group = RecorderGroup(InstanceId(name), SharedLeases(self.server), self.bus, self.clock, recorder_of)
        self.groups.append(group)
        return group

    async def turn(self, *groups: RecorderGroup) -> None:
        for group in groups:
            await group.run_once(self.clock.now_ms())

    async def let_recorders_work(self, seconds: float = 1.0) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        self.clock.advance(seconds)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    bench = Bench(store)
    yield bench
    bench.server.is_away = False
    for group in bench.groups:
        await group.leave()
    await store.close()


async def test_single_instance_records_every_partition(bench: Bench) -> None:
    group = bench.group("i-1")
    await bench.turn(group)
    assert set(group.partitions) == set(range(PARTITIONS))
    assert [loop.name for loop in group.loops] == [f"recorder-{partition}" for partition in range(PARTITIONS)]


async def test_two_instances_share_the_partitions(bench: Bench) -> None:
    one, two = bench.group("i-1"), bench.group("i-2")
    for _ in range(2):
        await bench.turn(one, two)
    assert set(one.partitions) | set(two.partitions) == set(range(PARTITIONS))
    assert not set(one.partitions) & set(two.partitions)


async def test_reports_are_settled(bench: Bench) -> None:
    await bench.crank.own()
    await bench.crank.add(job())
    dispatch = await bench.crank.fire_one()
    await bench.turn(bench.group("i-1"))
    await bench.bus.report(0, [report(dispatch)])
    await bench.let_recorders_work()
    await bench.let_recorders_work()
    assert (await bench.crank.look(dispatch)).state.name == "SUCCEEDED"


async def test_instance_that_leaves_records_nothing_and_frees_its_lease(bench: Bench) -> None:
    group = bench.group("i-1")
    await bench.turn(group)
    await group.leave()
    assert list(group.partitions) == []
    assert bench.server.leases == {}


async def test_instance_whose_lease_lapsed_releases_all_and_joins_again(bench: Bench) -> None:
    group = bench.group("i-1")
    await bench.turn(group)
    bench.server.lapse(InstanceId("i-1"))
    await bench.turn(group)
    assert list(group.partitions) == []
    await bench.turn(group)
    assert len(group.partitions) == PARTITIONS


async def test_partitions_are_kept_until_the_lease_is_in_doubt(bench: Bench) -> None:
    group = bench.group("i-1")
    await bench.turn(group)
    bench.server.is_away = True
    with pytest.raises(LeasesUnavailable):
        await bench.turn(group)
    assert len(group.partitions) == PARTITIONS
    await bench.let_recorders_work(TTL_SEC + 0.1)
    with pytest.raises(LeasesUnavailable):
        await bench.turn(group)
    assert list(group.partitions) == []


async def test_instance_that_cannot_reach_the_log_lets_its_lease_lapse(bench: Bench) -> None:
    group = bench.group("i-1")
    await bench.turn(group)
    bench.bus.is_away = True
    await bench.let_recorders_work(TTL_SEC + 0.1)
    with pytest.raises(BusUnavailable):
        await bench.turn(group)
    assert list(group.partitions) == []


async def test_recorder_whose_checkpoint_was_moved_releases_its_partition_and_opens_it_again(bench: Bench) -> None:
    """Another recorder settled a batch of it, so this one is refused by the store."""
    group = bench.group("i-1")
    await bench.turn(group)
    was = await bench.store.executions.find_checkpoint(0)
    assert was is not None
    moved = Checkpoint(0, was.generation, was.offset + 1, was.tick_ms)
    await bench.store.executions.settle([], [], was=was, now=moved, now_ms=bench.clock.now_ms())
    await bench.bus.report(0, [Tick(InstanceId("i-2"), 1, bench.clock.now_ms())])
    for _ in range(3):
        await bench.let_recorders_work()
    refused = {loop.name: loop.service for loop in group.loops}
    await bench.turn(group)
    opened = {loop.name: loop.service for loop in group.loops}
    assert opened.keys() == refused.keys()
    assert [name for name in opened if opened[name] is not refused[name]] == ["recorder-0"]
