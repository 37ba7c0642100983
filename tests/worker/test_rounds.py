"""Rounds of taking and starting."""

import asyncio

from noonday.worker.rounds import CLOSING_POLL_SEC, ROUND_WAIT_SEC, Rounds
from tests.support.clock import ManualClock


async def test_a_stop_wakes_the_start_loop_and_ends_taking() -> None:
    rounds = Rounds(ManualClock())
    await rounds.stop()
    assert (rounds.taking, rounds.start_wake.is_set()) == (False, True)


async def test_a_stop_waits_for_the_round_under_way() -> None:
    clock = ManualClock()
    rounds = Rounds(clock)
    with rounds.one():
        stopping = asyncio.create_task(rounds.stop())
        while not clock.sleepers:
            await asyncio.sleep(0)
    clock.advance(CLOSING_POLL_SEC)
    await stopping


async def test_a_stop_does_not_wait_for_a_round_that_hangs() -> None:
    clock = ManualClock()
    rounds = Rounds(clock)
    with rounds.one():
        stopping = asyncio.create_task(rounds.stop())
        while not clock.sleepers:
            await asyncio.sleep(0)
        clock.advance(ROUND_WAIT_SEC)
        await stopping


async def test_a_round_that_raises_is_not_under_way() -> None:
    rounds = Rounds(ManualClock())
    try:
        with rounds.one():
            raise ValueError
    except ValueError:
        await rounds.stop()
