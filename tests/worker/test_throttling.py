from collections.abc import Sequence

import pytest

from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.model.endpoint import EndpointLimits
from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Outcome
from noonday.model.message import Token
from noonday.model.throttle import CallEnd, CallRequest
from noonday.worker.run import Run
from noonday.worker.throttling import LEASE_SLACK_SEC, EndpointThrottle, failure_of_throttled
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, dispatch

THERE = "https://a.example:443"
ONE_AT_ONCE, ONE_A_SECOND = EndpointLimits(1, None), EndpointLimits(None, 1.0)
TIMEOUT_SEC = 30.0


class Shared(MemoryThrottles):
    """The counters that all workers share; they may be unavailable."""

    away = False
    asked = 0

    async def ask(self, requests: Sequence[CallRequest], now_ms: int) -> list[int]:
        self.asked += 1
        if self.away:
            raise SignalsUnavailable("away")
        return await super().ask(requests, now_ms)

    async def end(self, ends: Sequence[CallEnd]) -> None:
        if self.away:
            raise SignalsUnavailable("away")
        await super().end(ends)


class TwoWorkers:
    """Two workers."""

    def __init__(self) -> None:
        self.clock, self.shared = ManualClock(), Shared()
        self.here, self.there = [EndpointThrottle(self.shared, self.clock, lambda run: TIMEOUT_SEC) for _ in range(2)]

    async def ended(self, run: Run) -> None:
        run.started_ms, run.ended_ms, run.outcome = NOW_MS, NOW_MS + 5, Outcome.SUCCEEDED
        self.here.note(run)
        await self.here.release()


def run(execution: str, limits: EndpointLimits | None = ONE_AT_ONCE) -> Run:
    return Run(dispatch(execution, endpoint=THERE, limits=limits), Token(1, NOW_MS), None)


async def test_endpoint_without_limits_is_not_checked() -> None:
    workers = TwoWorkers()
    assert await workers.here.delay([run("a", None), run("b", None)]) == {}
    assert workers.shared.asked == 0


async def test_call_over_the_limit_waits_and_names_the_limit() -> None:
    workers, first, second = TwoWorkers(), run("a"), run("b")
    held = await workers.here.delay([first, second])
    assert list(held) == [second]
    assert (second.outcome, second.snooze_ms, second.failure) == (Outcome.SNOOZED, 250, held[second])
    assert held[second].type == "EndpointBusy"
    assert held[second].message == f"calls to {THERE} are limited to 1 at once: this one waits for 0.2 s"


def test_exceeded_rate_is_named_as_the_reason() -> None:
    reason = failure_of_throttled(dispatch(endpoint=THERE, limits=ONE_A_SECOND), 1234)
    assert reason.type == "EndpointRate"
    assert reason.message == f"calls to {THERE} are limited to 1 a second: this one waits for 1.2 s"


async def test_workers_share_their_counts() -> None:
    workers, first, second = TwoWorkers(), run("a"), run("b")
    await workers.here.delay([first])
    assert await workers.there.delay([second])
    await workers.ended(first)
    assert await workers.there.delay([second]) == {}


async def test_admitted_call_that_could_not_start_does_not_pay_again() -> None:
    workers, one = TwoWorkers(), run("a", ONE_A_SECOND)
    await workers.here.delay([one])
    assert await workers.here.delay([one]) == {}
    assert workers.shared.asked == 1


async def test_calls_with_limits_do_not_start_while_the_shared_store_is_away() -> None:
    workers = TwoWorkers()
    workers.shared.away = True
    with pytest.raises(SignalsUnavailable):
        await workers.here.delay([run("a")])


async def test_slot_that_could_not_be_released_is_released_later() -> None:
    workers, first = TwoWorkers(), run("a")
    await workers.here.delay([first])
    workers.shared.away = True
    await workers.ended(first)
    workers.shared.away = False
    await workers.here.release()
    assert await workers.there.delay([run("b")]) == {}


async def test_slot_of_a_dead_worker_is_freed_when_its_call_must_be_over() -> None:
    workers = TwoWorkers()
    await workers.here.delay([run("a")])
    workers.clock.advance(TIMEOUT_SEC + LEASE_SLACK_SEC)
    assert await workers.there.delay([run("b")]) == {}


async def test_second_delivery_of_a_call_that_could_not_start_takes_over_its_slot() -> None:
    workers, parked, again = TwoWorkers(), run("a"), run("a")
    await workers.here.delay([parked])
    assert await workers.here.delay([again]) == {}
    await workers.ended(parked)
    assert await workers.there.delay([run("b")])
    await workers.ended(again)
    assert await workers.there.delay([run("b")]) == {}
