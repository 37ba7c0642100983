"""The recorder over a real store, one round at a time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase, Work
from noonday.drivers.sqlite.store import prepare, store_on
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Outcome, State
from noonday.model.ids import InstanceId, WorkerId
from noonday.model.liveness import TICKS_TO_JUDGE
from noonday.model.message import Beat, Dispatch, LogEntry, Tick
from noonday.ports.signals import Named
from noonday.recorder.recorder import TICK_SEC, Recorder
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import NOW_MS, TENANT, WORKER, hello, job, report

T = TypeVar("T")


class FailingDatabase(InlineDatabase):
    """Raises what it is told to, before anything is committed."""

    def __init__(self) -> None:
        super().__init__(MEMORY, FileOptions(), prepare)
        self.errors: list[Exception | None] = []
        """What becomes of the next writes; None: it works."""

    async def write(self, work: Work[T]) -> T:
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return await super().write(work)


class ClaimingSignals(MemorySignals):
    """Claims lapse here, as they do in a cluster; notes which dispatches are told."""

    def __init__(self) -> None:
        super().__init__()
        self.told_names: list[Named] = []

    @property
    def lapse_sec(self) -> float:
        return 30.0

    async def told(self, names: Sequence[Named]) -> None:
        self.told_names += names


class Bench:
    """A recorder whose rounds and ticks the test turns by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.database = FailingDatabase()
        self.store = store_on(self.database, lead_ms=0)
        self.crank = Crank(self.store)
        self.bus = MemoryBus(self.clock)
        self.signals = ClaimingSignals()
        self.metrics = Metrics()
        self.recorder = self.new_recorder()

    def new_recorder(self) -> Recorder:
        return Recorder(
            instance=InstanceId("i-1"),
            partition=0,
            executions=self.store.executions,
            endpoints=self.store.endpoints,
            bus=self.bus,
            index=MemoryHotIndex(0),
            signals=self.signals,
            clock=self.clock,
            metrics=self.metrics,
            tracing=Tracing(None),
            hint_ahead_ms=0,
        )

    async def log(self, *entries: LogEntry) -> None:
        await self.bus.report(0, entries)

    async def tick(self, count: int = 1) -> None:
        """The recorder writes its next ticks, each after the former was acknowledged."""
        for _ in range(count):
            ticking = self.recorder.tick_forever()
            ticking.send(None)
            ticking.close()
            self.clock.advance(TICK_SEC)

    async def round(self) -> None:
        """One round of the recorder, which reads something."""
        going = asyncio.ensure_future(self.recorder.run_once(self.clock.now_ms()))
        while not going.done():
            await asyncio.sleep(0)
            if self.clock.sleepers:
                self.clock.advance(0.01)
        await going

    async def failing_rounds(self, count: int) -> None:
        """The store is away: each round reads the same batch and fails before its commit."""
        for _ in range(count):
            self.database.errors = [StoreUnavailable("away")]
            with pytest.raises(StoreUnavailable):
                await self.round()

    async def started(self) -> Dispatch:
        """A dispatch that runs, as far as the store knows."""
        await self.crank.own()
        await self.crank.add(job())
        dispatch = await self.crank.fire_one()
        await self.log(hello(), report(dispatch, Outcome.STARTED))
        await self.round()
        return dispatch

    async def state(self, dispatch: Dispatch) -> State:
        row = await self.store.archive.find_execution(TENANT, dispatch.execution_id)
        assert row is not None
        return row.state

    async def ended_lately(self) -> int:
        (figures,) = await self.store.archive.figures()
        return figures.ended

    def lost(self) -> float:
        return self.metrics.workers_lost._value.get()

    def ended(self, state: State) -> float:
        return self.metrics.executions.labels(state.name)._value.get()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.recorder.open()
    yield bench
    await bench.store.close()


async def test_a_tick_in_a_batch_that_is_retried_counts_once(bench: Bench) -> None:
    """The store is away while one tick waits: the worker has been silent for one tick, however often that is tried."""
    dispatch = await bench.started()
    await bench.tick()
    await bench.failing_rounds(3 * TICKS_TO_JUDGE)
    await bench.round()
    assert await bench.state(dispatch) is State.RUNNING
    assert bench.lost() == 0


async def test_a_worker_that_spoke_in_a_retried_batch_has_spoken_once(bench: Bench) -> None:
    """Its word is in front of the ticks of the batch, also when the batch is read again."""
    dispatch = await bench.started()
    await bench.log(Beat(WORKER, NOW_MS))
    await bench.tick(TICKS_TO_JUDGE - 1)
    await bench.failing_rounds(4)
    await bench.round()
    assert await bench.state(dispatch) is State.RUNNING
    await bench.tick()
    await bench.round()
    assert await bench.state(dispatch) is State.PENDING
    assert bench.lost() == 1


async def test_a_tick_that_somebody_replays_is_no_verdict(bench: Bench) -> None:
    dispatch = await bench.started()
    await bench.tick()
    tick = (await bench.bus.read(0, 0, 10, 0)).entries[-1]
    assert isinstance(tick, Tick)
    await bench.log(*[tick] * 3 * TICKS_TO_JUDGE)
    await bench.round()
    assert await bench.state(dispatch) is State.RUNNING


async def test_ticks_of_an_earlier_tenure_do_not_count(bench: Bench) -> None:
    """An instance that gave up a partition and has it again reads the ticks it wrote before: they may be from one second."""
    dispatch = await bench.started()
    for _ in range(3 * TICKS_TO_JUDGE):
        await bench.tick()
        bench.recorder = bench.new_recorder()
    await bench.recorder.open()
    await bench.tick()
    await bench.round()
    assert await bench.state(dispatch) is State.RUNNING


async def test_a_verdict_that_the_store_did_not_take_is_counted_when_it_does(bench: Bench) -> None:
    dispatch = await bench.started()
    await bench.tick(TICKS_TO_JUDGE)
    for _ in range(3):
        bench.database.errors = [None, StoreUnavailable("away")]
        with pytest.raises(StoreUnavailable):
            await bench.round()
        await bench.log(Beat(WorkerId("w-2"), NOW_MS))
    assert bench.lost() == 0
    await bench.round()
    assert bench.lost() == 1
    assert await bench.state(dispatch) is State.PENDING


async def test_runs_in_a_batch_that_is_retried_are_counted_once(bench: Bench) -> None:
    dispatch = await bench.started()
    await bench.log(report(dispatch))
    await bench.failing_rounds(5)
    assert bench.ended(State.SUCCEEDED) == 0
    await bench.round()
    assert bench.ended(State.SUCCEEDED) == 1
    assert await bench.ended_lately() == 1


async def test_what_a_dead_worker_reported_is_told_once_also_while_the_store_is_away(bench: Bench) -> None:
    dispatch = await bench.started()
    bench.clock.advance(60)
    await bench.log(report(dispatch))
    await bench.failing_rounds(5)
    bench.signals.told_names.clear()
    bench.clock.advance(60)
    await bench.failing_rounds(1)
    assert bench.signals.told_names == [(dispatch.execution_id, 1)]
