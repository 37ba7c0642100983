"""From the bus to the backlog."""

from typing import Any

import pytest

from noonday.model.claim import ClaimRefused
from noonday.model.errors import SignalsUnavailable
from noonday.model.handler import Mode
from noonday.model.message import Dispatch
from noonday.worker.connectivity import MAX_SIGNALS_OUTAGE_SEC
from noonday.worker.parked import PARKED_RETRY_SEC
from tests.worker.parts import POOL, Parts

LANE = (POOL, Mode.ASYNC)


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


async def publish(it: Parts, count: int = 1, **fields: Any) -> list[Dispatch]:
    made = [it.run(**fields).dispatch for _ in range(count)]
    await it.bus.publish(made)
    return made


async def test_taken_dispatches_are_claimed_and_ready() -> None:
    it = await parts()
    (made,) = await publish(it)
    assert await it.taker.take_once(0) == 1
    (run,) = it.backlog.ready(LANE)
    assert run.dispatch is made
    assert run.token is not None
    assert it.rounds.start_wake.is_set()


async def test_take_returns_no_more_than_the_room() -> None:
    it = await parts()
    await publish(it, 6)
    assert await it.taker.take_once(0) == 4
    assert await it.taker.take_once(0) == 0
    assert it.bus.depth() == {POOL: 2}


async def test_runs_that_will_not_start_soon_are_not_claimed_yet() -> None:
    it = await parts()
    await publish(it, 4)
    await it.taker.take_once(0)
    assert sum(run.token is not None for run in it.backlog.ready(LANE)) == 2


async def test_nothing_is_taken_while_claims_are_impossible() -> None:
    it = await parts()
    await publish(it)
    it.connectivity.note_signals_unavailable()
    it.clock.advance(MAX_SIGNALS_OUTAGE_SEC + 0.1)
    assert await it.taker.take_once(0) == 0
    assert it.bus.depth() == {POOL: 1}


async def test_dispatches_that_could_not_be_claimed_are_parked_and_tried_again() -> None:
    it = await parts()
    (made,) = await publish(it)
    it.signals.is_away = True
    with pytest.raises(SignalsUnavailable):
        await it.taker.take_once(0)
    assert len(it.parked) == 1
    it.signals.is_away = False
    it.clock.advance(PARKED_RETRY_SEC)
    await it.taker.take_once(0)
    assert [run.dispatch for run in it.backlog.ready(LANE)] == [made]


async def test_a_duplicate_is_not_admitted() -> None:
    it = await parts()
    (made,) = await publish(it)
    it.signals.refused[made.execution_id] = ClaimRefused.ACKED
    await it.taker.take_once(0)
    assert len(it.backlog.ready(LANE)) == 0


async def test_a_new_identity_joins_before_it_takes() -> None:
    it = await parts()
    it.membership.change_identity()
    await it.taker.take_once(0)
    assert it.membership.identity.has_joined


async def test_a_stopped_worker_admits_nothing() -> None:
    it = await parts()
    await it.rounds.stop()
    await publish(it)
    assert await it.taker.take_once(0) == 0
    assert len(it.backlog.ready(LANE)) == 0
