"""Starts that are on the log before the handler is entered."""

import asyncio

import pytest

from noonday.model.errors import BusUnavailable
from noonday.model.execution import Outcome
from noonday.model.message import Report
from tests.worker.parts import LAPSE_SEC, Parts


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


async def ended(it: Parts) -> None:
    while not it.ended:
        await asyncio.sleep(0)


async def starts(it: Parts) -> list[Report]:
    return [each for each in await it.bus.entries() if isinstance(each, Report) and each.outcome == Outcome.STARTED]


async def test_a_run_that_cannot_have_run_starts_at_once() -> None:
    it = await parts()
    run = await it.claimed()
    it.announcer.start_others([run])
    assert not it.announcer.is_announcing
    await ended(it)
    assert run.outcome is Outcome.SUCCEEDED


async def test_a_run_that_may_have_run_starts_once_its_start_is_on_the_log() -> None:
    it = await parts()
    run = await it.claimed(number=2)
    it.announcer.start_others([run])
    assert it.announcer.is_announcing
    assert await it.announcer.announce_once() == 1
    await ended(it)
    assert [each.execution_id for each in await starts(it)] == [run.dispatch.execution_id]
    assert run.start_reported
    assert run.started_ms > 0
    assert it.bus.done == [run.dispatch]


async def test_a_run_waits_while_the_log_does_not_accept_its_start() -> None:
    it = await parts()
    it.announcer.start_others([await it.claimed(number=2)])
    it.bus.is_away = True
    with pytest.raises(BusUnavailable):
        await it.announcer.announce_once()
    assert it.announcer.is_announcing


async def test_a_run_whose_claim_may_have_lapsed_is_rejected_after_its_announcement() -> None:
    it = await parts()
    run = await it.claimed(number=2)
    it.announcer.start_others([run])
    it.clock.advance(LAPSE_SEC)
    await it.announcer.announce_once()
    assert (list(it.ended), run.outcome, run.started_ms) == ([run], Outcome.INTERRUPTED, 0)


async def test_a_run_that_is_taken_back_does_not_start() -> None:
    it = await parts()
    run = await it.claimed(number=2)
    it.announcer.start_others([run])
    assert it.announcer.take_all() == [run]
    assert await it.announcer.announce_once() == 0
