"""Runs in progress."""

import asyncio
from typing import Any

from noonday.model.execution import Outcome
from noonday.worker.run import INTERRUPTED, TIMED_OUT
from tests.worker.parts import POOL, Parts


async def parts(**options: Any) -> Parts:
    made = Parts(**options)
    await made.open()
    return made


async def test_a_run_is_busy_once_its_handler_is_entered() -> None:
    it = await parts()
    run = it.run("until_cancelled")
    assert it.active.add([run]) == ([run], [])
    assert it.active.busy(POOL) == 0
    run.enter(it.clock.now_ms(), it.clock.monotonic())
    assert (it.active.busy(POOL), it.active.begun()) == (1, [run])


async def test_a_duplicate_delivery_of_an_active_run_is_parked() -> None:
    it = await parts()
    run, duplicate = it.run(execution="x"), it.run(execution="x")
    it.active.add([run])
    it.capacity.admit([duplicate])
    assert it.active.add([duplicate]) == ([], [])
    assert it.parked.take() == [duplicate.dispatch]
    assert it.capacity.room(POOL, it.clock.monotonic()) == 4
    assert it.active.find_duplicate(duplicate.dispatch) is run


async def test_a_later_dispatch_waits_and_stops_the_earlier_run() -> None:
    it = await parts()
    run, later = it.run(execution="x"), it.run(execution="x", number=2)
    it.active.add([run])
    assert it.active.add([later]) == ([], [later])
    assert run.stop_requested == INTERRUPTED


async def test_an_earlier_dispatch_of_an_active_execution_is_rejected() -> None:
    it = await parts()
    it.active.add([it.run(execution="x", number=2)])
    earlier = it.run(execution="x", number=1)
    assert it.active.add([earlier]) == ([], [])
    assert list(it.ended) == [earlier]


async def test_only_runs_that_were_active_are_removed() -> None:
    it = await parts()
    active, unstarted = it.run(), it.run()
    it.active.add([active])
    assert it.active.remove([active, unstarted]) == [active]
    assert len(it.active) == 0


async def test_the_first_stop_request_gives_the_reason() -> None:
    it = await parts()
    run = await it.started()
    it.active.request_stop(run, TIMED_OUT)
    it.active.interrupt_all()
    while not it.ended:
        await asyncio.sleep(0)
    assert (run.stop_requested, run.outcome) == (TIMED_OUT, Outcome.TIMED_OUT)


async def test_the_stand_in_of_an_abandoned_run_ends_and_the_run_itself_is_dropped() -> None:
    it = await parts()
    run = await it.started()
    it.active.abandon(run)
    (stand_in,) = it.ended.take(10)
    assert it.active.find(run.dispatch.execution_id) is stand_in
    assert it.active.without_abandoned([run]) == []
    assert len(it.active.abandoned) == 0


async def test_an_abandoned_run_beyond_the_limit_keeps_its_slot_until_it_ends() -> None:
    it = await parts(max_abandoned=0)
    run = await it.started()
    it.active.abandon(run)
    it.capacity.end(it.active.remove(it.ended.take(10)))
    assert it.capacity.free_for_coroutines(POOL) == 1
    it.active.without_abandoned([run])
    assert it.capacity.free_for_coroutines(POOL) == 2
