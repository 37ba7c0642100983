"""Slots of pools and modes: how many dispatches are taken, and how many runs start."""

import pytest

from noonday.model.handler import Handler, Mode
from noonday.worker.capacity import LOOKAHEAD_SEC, Capacity
from noonday.worker.options import WorkerOptions
from noonday.worker.run import Run
from tests.support.clock import ManualClock
from tests.support.factories import dispatch

COROUTINES, THREADS = ("p", Mode.ASYNC), ("p", Mode.THREAD)


def capacity_of(clock: ManualClock, *, mixed: bool = False) -> Capacity:
    return Capacity(WorkerOptions(concurrency={"p": 4, "q": 4}, threads=3), {"p"} if mixed else (), clock)


def run(mode: Mode = Mode.ASYNC) -> Run:
    return Run(dispatch(pool="p"), None, Handler("h", "p", print, mode))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_room_is_twice_the_concurrency_less_admitted_runs(clock: ManualClock) -> None:
    capacity = capacity_of(clock)
    capacity.admit([run(), run(), run()])
    assert capacity.room("p", clock.monotonic()) == 5


def test_released_runs_make_room(clock: ManualClock) -> None:
    capacity, runs = capacity_of(clock), [run(), run()]
    capacity.admit(runs)
    capacity.release(runs)
    assert capacity.room("p", clock.monotonic()) == 8


def test_a_pool_whose_runs_end_quickly_has_room_for_half_a_second_of_them(clock: ManualClock) -> None:
    capacity, ending = capacity_of(clock), [run() for _ in range(101)]
    clock.advance(1)
    capacity.start(COROUTINES, 101)
    capacity.end(ending)  # the first begins a new measurement
    clock.advance(0.5)
    assert capacity.room("p", clock.monotonic()) == 100


def test_runs_without_a_free_slot_are_not_expected_to_start_soon(clock: ManualClock) -> None:
    runs = [run() for _ in range(6)]
    assert capacity_of(clock).split_by_expected_start(runs) == (runs[:4], runs[4:])


def test_started_coroutines_use_slots_until_they_end(clock: ManualClock) -> None:
    capacity = capacity_of(clock)
    capacity.start(COROUTINES, 3)
    assert capacity.free_for_coroutines("p") == 1
    capacity.end([run()])
    assert capacity.free_for_coroutines("p") == 2


@pytest.mark.parametrize("mixed", [False, True])
def test_only_a_pool_on_one_host_looks_ahead(clock: ManualClock, mixed: bool) -> None:
    capacity = capacity_of(clock, mixed=mixed)
    capacity.start(COROUTINES, 1_000)
    clock.advance(1)
    capacity.end([run() for _ in range(1_000)])
    clock.advance(0.1)
    ahead = capacity.free_for_coroutines("p") - 4
    assert (ahead > 0) is not mixed
    assert ahead <= 10_000 * LOOKAHEAD_SEC


def test_lanes_that_share_the_threads_each_get_a_part(clock: ManualClock) -> None:
    capacity = capacity_of(clock)
    assert capacity.free_for_functions(THREADS, 1) == 3
    assert capacity.free_for_functions(THREADS, 2) == 2
    capacity.start(THREADS, 2)
    assert capacity.free_for_functions(THREADS, 2) == 1


def test_a_kept_slot_is_free_once_its_run_has_ended(clock: ManualClock) -> None:
    capacity, abandoned = capacity_of(clock), run(Mode.THREAD)
    capacity.start(THREADS, 1)
    capacity.keep_slot(abandoned)
    capacity.end([run(Mode.THREAD)])  # the substitute run is reported
    assert capacity.free_for_functions(THREADS, 1) == 2
    capacity.free_kept_slot(abandoned)
    assert capacity.free_for_functions(THREADS, 1) == 3
