"""The pre-start check."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from noonday.model.claim import FENCED, ClaimRefused
from noonday.model.execution import Outcome
from noonday.model.fence import START_WITHIN_MS
from noonday.model.ids import ExecutionId
from noonday.model.message import Dispatch
from tests.worker.parts import POOL, Parts, PartSignals


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


async def test_a_run_without_a_reason_may_start() -> None:
    it = await parts()
    run = await it.claimed()
    assert await it.check.check(POOL, [run], {}) == ([run], {})
    assert it.check.passes(run, {}, it.clock.now_ms())
    assert run.checked_ms == it.clock.now_ms()


async def test_an_unclaimed_run_is_claimed_first() -> None:
    it = await parts()
    run = it.run()
    assert await it.check.check(POOL, [run], {}) == ([run], {})
    assert run.token is not None


async def test_a_run_whose_claim_is_refused_is_dropped() -> None:
    it = await parts()
    run = it.run()
    it.capacity.admit([run])
    it.signals.refused[run.dispatch.execution_id] = ClaimRefused.CLAIMED
    assert await it.check.check(POOL, [run], {}) == ([], {})
    assert it.capacity.room(POOL, it.clock.monotonic()) == 4


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("CANCELLED", Outcome.CANCELLED), ("PAUSED", Outcome.REVOKED), (FENCED, Outcome.INTERRUPTED)],
)
async def test_a_run_with_a_reason_is_rejected(reason: str, outcome: Outcome) -> None:
    it = await parts()
    run = await it.claimed()
    assert not it.check.passes(run, {run.dispatch.execution_id: reason}, it.clock.now_ms())
    assert (list(it.ended), run.outcome) == ([run], outcome)


async def test_a_revocation_is_a_reason() -> None:
    it = await parts()
    run = await it.claimed()
    await it.signals.revoke(POOL, [(run.dispatch.execution_id, run.dispatch.number, "CANCELLED")])
    assert await it.check.check(POOL, [run], {}) == ([run], {run.dispatch.execution_id: "CANCELLED"})


async def test_a_dispatch_that_was_fired_too_long_ago_does_not_start() -> None:
    it = await parts()
    run = await it.claimed()
    assert not it.check.passes(run, {}, run.dispatch.fired_ms + START_WITHIN_MS + 1)
    assert run.outcome is Outcome.INTERRUPTED


async def test_a_first_attempt_after_its_start_deadline_expires() -> None:
    it = await parts()
    run = await it.claimed(start_deadline_sec=1)
    assert not it.check.passes(run, {}, run.dispatch.due_ms + 1_001)
    assert run.outcome is Outcome.EXPIRED


async def test_a_run_without_a_handler_is_handed_back() -> None:
    it = await parts()
    run = await it.claimed("unknown")
    assert not it.check.passes(run, {}, it.clock.now_ms())
    assert run.outcome is Outcome.HANDED_BACK


async def test_a_deferred_run_waits_on_the_timeline() -> None:
    it = await parts()
    run = await it.claimed()
    assert await it.check.check(POOL, [run], {run: 5.0}) == ([], {})
    assert (list(it.ended), run.outcome, run.snooze_ms) == ([run], Outcome.SNOOZED, 5_000)


async def test_nothing_starts_while_the_signals_are_unavailable() -> None:
    it = await parts()
    run = await it.claimed()
    it.signals.is_away = True
    assert await it.check.check(POOL, [run], {}) == ([run], None)
    assert it.connectivity.reasons_not_ready()


class SlowSignals(PartSignals):
    """Signals that answer pre-start checks when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        self.asked.set()
        await self.answer.wait()
        return await super().pre_start_check(pool, dispatches)


async def test_runs_that_are_taken_during_their_check_are_not_returned_by_it() -> None:
    signals = SlowSignals()
    it = Parts(signals=signals)
    await it.open()
    run = await it.claimed()
    checking = asyncio.create_task(it.check.check(POOL, [run], {}))
    await signals.asked.wait()
    assert it.check.take_all() == [run]
    signals.answer.set()
    assert await checking == ([], {})
