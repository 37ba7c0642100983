"""The recorder over a real store, one round at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import pytest

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.sqlite.connection import MEMORY, FileOptions, InlineDatabase, Work
from noonday.drivers.sqlite.store import prepare, store_on
from noonday.model.claim import DispatchRef
from noonday.model.errors import BadData, StoreFailed, StoreUnavailable
from noonday.model.execution import Outcome, State
from noonday.model.ids import InstanceId, WorkerId
from noonday.model.liveness import TICKS_TO_JUDGE
from noonday.model.message import Beat, Dispatch, LogEntry, Report, Tick
from noonday.model.recording import SettleResult
from noonday.ports.executions import Executions
from noonday.recorder.recorder import PACE_SEC, TICK_SEC, Recorder
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import NOW_MS, TENANT, WORKER, hello, job, report

T = TypeVar("T")


class FailingDatabase(InlineDatabase):
    """Raises a configured error, before anything is committed."""

    def __init__(self) -> None:
        super().__init__(MEMORY, FileOptions(), prepare)
        self.errors: list[Exception | None] = []
        """The errors of the next writes; None: the write succeeds."""

    async def write(self, work: Work[T]) -> T:
        if self.errors and (error := self.errors.pop(0)):
            raise error
        return await super().write(work)


class ClaimingSignals(MemorySignals):
    """Claims lapse here, as they do in a cluster; acked dispatches are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.acked_names: list[DispatchRef] = []

    @property
    def lapse_sec(self) -> float:
        return 30.0

    async def ack(self, names: Sequence[DispatchRef]) -> None:
        self.acked_names += names


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
        self.error_after_commit: StoreFailed | None = None
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
            on_settled=self._on_settled,
        )

    def _on_settled(self, settled: SettleResult) -> None:
        if self.error_after_commit is not None:
            raise self.error_after_commit

    async def log(self, *entries: LogEntry) -> None:
        await self.bus.report(0, entries)

    async def tick(self, count: int = 1) -> None:
        """Let the recorder write its next ticks, each after the former was acknowledged."""
        for _ in range(count):
            ticking = self.recorder.tick_forever()
            ticking.send(None)
            ticking.close()
            self.clock.advance(TICK_SEC)

    async def round(self) -> None:
        """Play one round in which the recorder reads something."""
        going = asyncio.ensure_future(self.recorder.run_once(self.clock.now_ms()))
        while not going.done():
            await asyncio.sleep(0)
            if self.clock.sleepers:
                self.clock.advance(0.01)
        await going

    async def failing_rounds(self, count: int) -> None:
        """Play rounds while the store is away: each round reads the same batch and fails before its commit."""
        for _ in range(count):
            self.database.errors = [StoreUnavailable("away")]
            with pytest.raises(StoreUnavailable):
                await self.round()

    async def started(self) -> Dispatch:
        """Return a dispatch that runs, as far as the store knows."""
        await self.crank.own()
        await self.crank.add(job())
        dispatch = await self.crank.fire_one()
        await self.log(hello(), report(dispatch, Outcome.STARTED))
        await self.round()
        return dispatch

    async def state(self, dispatch: Dispatch) -> State:
        row = await self.store.query_store.find_execution(TENANT, dispatch.execution_id)
        assert row is not None
        return row.state

    async def ended_lately(self) -> int:
        (figures,) = await self.store.workload.figures()
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


async def test_report_after_a_pause_is_settled_at_once(bench: Bench) -> None:
    dispatch = await bench.started()
    bench.clock.advance(PACE_SEC)
    await bench.log(report(dispatch))
    since = bench.clock.monotonic()
    await bench.round()
    assert await bench.state(dispatch) is State.SUCCEEDED
    assert bench.clock.monotonic() == since


async def test_small_batch_soon_after_another_waits_for_more_entries(bench: Bench) -> None:
    dispatch = await bench.started()
    await bench.log(Beat(WORKER, NOW_MS))
    since = bench.clock.monotonic()
    going = asyncio.ensure_future(bench.recorder.run_once(bench.clock.now_ms()))
    while not bench.clock.sleepers:
        await asyncio.sleep(0)
    await bench.log(report(dispatch))
    bench.clock.advance(PACE_SEC)
    assert await going == 2
    assert bench.clock.monotonic() == since + PACE_SEC
    assert await bench.state(dispatch) is State.SUCCEEDED


async def test_a_tick_in_a_batch_that_is_retried_counts_once(bench: Bench) -> None:
    """The store is away while one tick waits: the worker has been silent for one tick, however often the batch is tried."""
    dispatch = await bench.started()
    await bench.tick()
    await bench.failing_rounds(3 * TICKS_TO_JUDGE)
    await bench.round()
    assert await bench.state(dispatch) is State.RUNNING
    assert bench.lost() == 0


async def test_a_worker_that_spoke_in_a_retried_batch_has_spoken_once(bench: Bench) -> None:
    """The worker's entry is before the ticks of the batch, also when the batch is read again."""
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


async def test_replayed_tick_is_no_verdict(bench: Bench) -> None:
    dispatch = await bench.started()
    await bench.tick()
    tick = (await bench.bus.read(0, 0, 10, 0)).entries[-1]
    assert isinstance(tick, Tick)
    await bench.log(*[tick] * 3 * TICKS_TO_JUDGE)
    await bench.round()
    assert await bench.state(dispatch) is State.RUNNING


async def test_ticks_of_an_earlier_tenure_do_not_count(bench: Bench) -> None:
    """An instance that gave up a partition and has it again reads its former ticks, which may all be from one second."""
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


async def test_reports_of_a_dead_worker_are_acked_once_even_while_the_store_is_away(bench: Bench) -> None:
    dispatch = await bench.started()
    bench.clock.advance(60)
    await bench.log(report(dispatch))
    await bench.failing_rounds(5)
    bench.signals.acked_names.clear()
    bench.clock.advance(60)
    await bench.failing_rounds(1)
    assert bench.signals.acked_names == [(dispatch.execution_id, 1)]


# Reports that cannot be settled


class Refusing:
    """A store that raises configured errors about some reports, before it does anything."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self.error_of: Callable[[Report], Exception | None] = lambda report: None
        self.settlings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executions, name)

    async def settle(self, reports: Sequence[Report], signs: Any, **more: Any) -> SettleResult:
        self.settlings += 1
        for each in reports:
            if error := self.error_of(each):
                raise error
        return await self._executions.settle(reports, signs, **more)


@pytest.fixture
def refusing(bench: Bench) -> Refusing:
    store = bench.recorder._executions = Refusing(bench.store.executions)  # type: ignore[assignment]
    assert isinstance(store, Refusing)
    return store


async def many_started(bench: Bench, count: int) -> list[Dispatch]:
    await bench.crank.own()
    await bench.crank.add(*[job() for _ in range(count)])
    dispatches = list((await bench.crank.fire()).dispatches)
    await bench.log(hello(), *[report(each, Outcome.STARTED) for each in dispatches])
    await bench.round()
    return dispatches


async def test_bad_report_fails_alone_and_is_kept(bench: Bench, refusing: Refusing) -> None:
    dispatches = await many_started(bench, 40)
    bad = dispatches[17]
    refusing.error_of = lambda each: (
        BadData("refused") if each.execution_id == bad.execution_id and each.result else None
    )
    await bench.log(*[report(each, result=b"ciphertext") for each in dispatches])
    await bench.round()
    assert [await bench.state(each) for each in dispatches] == [
        State.PENDING if each is bad else State.SUCCEEDED for each in dispatches
    ]
    assert [entry.execution_id for entry, _ in bench.bus.dead_letters] == [bad.execution_id]  # type: ignore[union-attr]
    assert bench.ended(State.SUCCEEDED) == 39
    assert await bench.ended_lately() == 40


async def test_report_that_is_refused_in_every_form_does_not_stop_the_log(bench: Bench, refusing: Refusing) -> None:
    """The substitute failure is refused, too: the log goes on without it, after three tries."""
    bad, good = await many_started(bench, 2)
    refusing.error_of = lambda each: BadData("refused") if each.execution_id == bad.execution_id else None
    refusing.settlings = 0
    await bench.log(report(bad), report(good))
    await bench.round()
    assert refusing.settlings == 5
    assert await bench.state(bad) is State.RUNNING
    assert await bench.state(good) is State.SUCCEEDED
    assert len(bench.bus.dead_letters) == 1
    await bench.log(Beat(WORKER, NOW_MS))
    refusing.settlings = 0
    await bench.round()
    assert refusing.settlings == 1


@pytest.mark.parametrize("error", [StoreFailed("XX000: internal error"), KeyError("a mistake of ours")], ids=repr)
async def test_report_that_fails_for_another_reason_is_never_turned_into_a_failure(
    bench: Bench, refusing: Refusing, error: Exception
) -> None:
    """Earlier reports are settled.

    The failing one is tried again in its position, a few statements a round, until it works.
    """
    dispatches = await many_started(bench, 40)
    bad = dispatches[17]
    refusing.error_of = lambda each: error if each.execution_id == bad.execution_id else None
    await bench.log(*[report(each) for each in dispatches])
    for _ in range(5):
        refusing.settlings = 0
        with pytest.raises(StoreFailed, match=bad.execution_id):
            await bench.round()
        assert refusing.settlings < 15
        assert bench.recorder.answered_at == pytest.approx(bench.clock.monotonic(), abs=1)
    assert bench.ended(State.SUCCEEDED) == 17
    refusing.error_of = lambda each: None
    await bench.round()
    assert [await bench.state(each) for each in dispatches] == [State.SUCCEEDED] * 40
    assert bench.ended(State.SUCCEEDED) == 40
    assert len(bench.bus.dead_letters) == 0
    assert await bench.ended_lately() == 40


async def test_worker_whose_reports_are_refused_is_alive(bench: Bench, refusing: Refusing) -> None:
    dispatch = await bench.started()
    refusing.error_of = lambda each: BadData("refused")
    for _ in range(2 * TICKS_TO_JUDGE):
        await bench.log(report(dispatch, Outcome.STARTED))
        await bench.tick()
        await bench.round()
    assert bench.lost() == 0


async def test_error_after_the_commit_does_not_settle_twice(bench: Bench) -> None:
    dispatch = await bench.started()
    bench.error_after_commit = StoreFailed("not of the batch")
    await bench.log(report(dispatch), Beat(WORKER, NOW_MS))
    with pytest.raises(StoreFailed, match="not of the batch"):
        await bench.round()
    assert bench.ended(State.SUCCEEDED) == 1
    assert len(bench.bus.dead_letters) == 0
    assert (await bench.bus.read(0, 0, 10, 0)).entries
    place = await bench.store.executions.find_checkpoint(0)
    assert place is not None
    assert (await bench.bus.read(0, place.offset, 10, 0)).entries == ()
