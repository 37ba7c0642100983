"""The steps of a stop, each within the remaining time."""

import asyncio

import pytest

from noonday.runtime.supervise import StopDeadline
from tests.support.clock import ManualClock
from tests.support.eventually import eventually


async def test_a_step_that_hangs_is_left_behind_when_the_time_is_over() -> None:
    clock = ManualClock()
    deadline = StopDeadline(clock, 5)
    step = asyncio.create_task(deadline.step("hang", _hang()))
    await eventually(lambda: clock.sleepers == 1)
    assert not step.done()

    clock.advance(5)

    assert await step is False
    assert deadline.left_sec() == 0


@pytest.mark.slow
async def test_a_step_that_ignores_its_cancellation_is_left_behind() -> None:
    clock = ManualClock()
    go = asyncio.Event()
    step = asyncio.create_task(StopDeadline(clock, 5).step("ignore", _ignore(go)))
    await eventually(lambda: clock.sleepers == 1)
    clock.advance(5)

    assert await step is False
    go.set()


async def test_step_after_the_deadline_may_still_do_immediate_work() -> None:
    clock = ManualClock()
    deadline = StopDeadline(clock, 5)
    clock.advance(6)

    assert await deadline.step("quick", asyncio.sleep(0)) is True


async def test_error_of_a_step_is_raised() -> None:
    with pytest.raises(ValueError, match="told to"):
        await StopDeadline(ManualClock(), 5).step("fail", _fail())


async def _hang() -> None:
    await asyncio.get_running_loop().create_future()


async def _ignore(go: asyncio.Event) -> None:
    while not go.is_set():
        try:
            await go.wait()
        except asyncio.CancelledError:
            continue


async def _fail() -> None:
    raise ValueError("told to")
