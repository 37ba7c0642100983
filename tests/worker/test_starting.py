"""From the backlog to the hosts."""

import asyncio
from typing import Any

from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.worker.run import DEFAULT_TIMEOUT_SEC
from tests.worker.parts import POOL, Parts

LANE = (POOL, Mode.ASYNC)


async def parts(**options: Any) -> Parts:
    made = Parts(**options)
    await made.open()
    return made


async def test_no_more_runs_start_than_there_are_slots() -> None:
    it = await parts()
    runs = [await it.claimed("until_cancelled") for _ in range(3)]
    it.backlog.admit(runs, it.clock.now_ms())
    await it.starter.start_once()
    assert len(it.active) == 2
    assert list(it.backlog.ready(LANE)) == runs[2:]


async def test_a_started_run_has_its_timeout() -> None:
    it = await parts()
    first, second = await it.started(timeout_sec=4), await it.started()
    assert (first.timeout_sec, second.timeout_sec) == (4, DEFAULT_TIMEOUT_SEC)


async def test_the_next_round_comes_when_the_next_run_is_due() -> None:
    it = await parts()
    assert await it.starter.start_once() == 0.5
    it.backlog.admit([it.run(due_ms=it.clock.now_ms() + 200)], it.clock.now_ms())
    assert await it.starter.start_once() == 0.2


async def test_runs_that_could_not_be_checked_stay_and_are_tried_again_soon() -> None:
    it = await parts()
    run = await it.claimed()
    it.backlog.admit([run], it.clock.now_ms())
    it.signals.is_away = True
    assert await it.starter.start_once() == 0.05
    assert list(it.backlog.ready(LANE)) == [run]


async def test_a_worker_that_may_be_judged_lost_starts_nothing() -> None:
    it = await parts(frozen_after_sec=1.0)
    it.backlog.admit([await it.claimed()], it.clock.now_ms())
    it.clock.advance(1.1)
    await it.starter.start_once()
    assert len(it.active) == 0


async def test_a_later_dispatch_starts_when_the_earlier_run_has_ended() -> None:
    it = await parts()
    earlier = await it.started(execution="x")
    later = await it.claimed("until_cancelled", execution="x", number=2, attempt=2)
    it.backlog.admit([later], it.clock.now_ms())
    await it.starter.start_once()
    assert (it.active.all(), list(it.backlog.ready(LANE))) == ([earlier], [later])
    while not it.ended:
        await asyncio.sleep(0)
    await it.reporter.report_once()
    await it.starter.start_once()
    assert it.active.all() == [later]


async def test_unstarted_runs_are_returned_wherever_they_wait() -> None:
    it = await parts()
    ready, early = await it.claimed(), await it.claimed(due_ms=it.clock.now_ms() + 200)
    announced = await it.claimed(number=2)
    it.backlog.admit([ready, early], it.clock.now_ms())
    it.announcer.start_others([announced])
    it.starter.return_unstarted()
    assert {run.outcome for run in it.ended} == {Outcome.INTERRUPTED}
    assert set(it.ended) == {ready, early, announced}
