"""Timeouts of runs."""

from noonday.model.handler import Handler, Mode
from noonday.worker.context import Context
from noonday.worker.deadlines import BLOCKING_STEP_SEC, KILL_CONFIRM_SEC, Deadlines, warn_of_blocking
from noonday.worker.run import HEARTBEAT, TIMED_OUT
from tests.worker.parts import Parts

GRACE_SEC = 5.0


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


def enforce(it: Parts) -> None:
    Deadlines(it.active, GRACE_SEC).enforce(it.active.begun(), it.clock.monotonic())


async def test_a_run_is_stopped_at_its_timeout() -> None:
    it = await parts()
    run = await it.started(timeout_sec=4)
    it.clock.advance(3.9)
    enforce(it)
    assert run.stop_requested is None
    it.clock.advance(0.1)
    enforce(it)
    assert run.stop_requested == TIMED_OUT


async def test_a_run_without_a_heartbeat_is_stopped() -> None:
    it = await parts()
    run = await it.started(heartbeat_timeout_sec=4)
    it.clock.advance(4)
    enforce(it)
    assert run.stop_requested == HEARTBEAT


async def test_a_heartbeat_extends_the_run() -> None:
    it = await parts()
    run = await it.started(heartbeat_timeout_sec=4)
    it.clock.advance(4)
    assert isinstance(run.context, Context)
    run.context.heartbeat()
    enforce(it)
    assert run.stop_requested is None


async def test_a_run_that_ignores_its_stop_is_abandoned_after_the_grace() -> None:
    it = await parts()
    run = await it.started()
    it.active.interrupt_all()
    it.clock.advance(GRACE_SEC - 0.1)
    enforce(it)
    assert run not in it.active.abandoned
    it.clock.advance(0.1)
    enforce(it)
    assert run in it.active.abandoned


async def test_a_process_has_time_to_die_before_it_is_abandoned() -> None:
    it = await parts()
    run = await it.started()
    run.handler = Handler("h", "p", print, Mode.PROCESS)
    it.active.interrupt_all()
    it.clock.advance(GRACE_SEC)
    enforce(it)
    assert run not in it.active.abandoned
    it.clock.advance(KILL_CONFIRM_SEC)
    enforce(it)
    assert run in it.active.abandoned


async def test_a_coroutine_that_blocks_its_loop_is_marked_as_stuck() -> None:
    it = await parts()
    run = it.run()
    now = it.clock.monotonic()
    warn_of_blocking((run, now), now + BLOCKING_STEP_SEC - 0.1)
    assert not run.stuck
    warn_of_blocking((run, now), now + BLOCKING_STEP_SEC)
    assert run.stuck
