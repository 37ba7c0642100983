from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.model.breaker import MIN_CALLS, MIN_RUNS, OPEN_MS
from noonday.model.execution import Outcome
from noonday.model.message import Token
from noonday.ports.breakers import Breakers
from noonday.worker.retry_breaker import PROBE_SEC, SPREAD_SEC, SYNC_SEC, RetryBreaker, failure_of_delayed, name_of
from noonday.worker.run import Run
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, dispatch

OPEN_SEC = OPEN_MS / 1000
THERE = "https://a.example:443"


class TwoWorkers:
    """Two workers that share their breakers, and runs that end as configured."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.breakers: Breakers = MemoryBreakers()
        self.here, self.there = RetryBreaker(self.breakers, self.clock), RetryBreaker(self.breakers, self.clock)

    async def ended(
        self, outcome: Outcome, count: int = 1, *, at: RetryBreaker | None = None, counts: bool = True, **fields: object
    ) -> None:
        breaker = at or self.here
        for _ in range(count):
            one = run(**fields)
            one.started_ms, one.outcome, one.counts = NOW_MS, outcome, counts
            breaker.note(one)
        self.clock.advance(SYNC_SEC)
        await breaker.sync()

    async def wait_of(self, one: Run, at: RetryBreaker | None = None) -> float:
        return (await (at or self.here).delay([one])).get(one, 0.0)


def run(attempt: int = 2, **fields: object) -> Run:
    return Run(dispatch(attempt=attempt, **fields), Token(1, NOW_MS), None)


async def test_retries_of_a_handler_that_fails_wait_and_first_attempts_do_not() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_RUNS)
    assert OPEN_SEC <= await workers.wait_of(run()) <= OPEN_SEC + SPREAD_SEC
    assert await workers.wait_of(run(attempt=1)) == 0
    assert await workers.wait_of(run(handler="another")) == 0


async def test_all_calls_to_an_endpoint_wait() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.TIMED_OUT, MIN_CALLS, endpoint=THERE)
    assert await workers.wait_of(run(attempt=1, endpoint=THERE)) >= OPEN_SEC
    assert await workers.wait_of(run(attempt=1, endpoint=THERE, tenant="another")) == 0
    assert await workers.wait_of(run(attempt=1, endpoint="https://b.example:443")) == 0
    assert await workers.wait_of(run()) == 0


async def test_another_worker_learns_of_an_open_breaker_when_it_syncs() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_RUNS)
    assert await workers.wait_of(run(), workers.there) == 0
    await workers.ended(Outcome.FAILED, at=workers.there)
    assert await workers.wait_of(run(), workers.there) > 0


async def test_outcomes_that_are_not_the_receivers_do_not_count() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_CALLS, counts=False, endpoint=THERE)
    await workers.ended(Outcome.CANCELLED, MIN_CALLS, endpoint=THERE)
    await workers.ended(Outcome.SNOOZED, MIN_CALLS, endpoint=THERE)
    assert await workers.wait_of(run(endpoint=THERE)) == 0


async def test_successful_probe_closes_the_breaker() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_CALLS, endpoint=THERE)
    workers.clock.advance(OPEN_SEC)
    probe, other = run(endpoint=THERE), run(endpoint=THERE)
    assert list(await workers.here.delay([probe, other])) == [other]
    assert await workers.wait_of(other) <= PROBE_SEC + SPREAD_SEC
    probe.started_ms, probe.outcome = NOW_MS, Outcome.SUCCEEDED
    workers.here.note(probe)
    await workers.here.sync()
    assert await workers.wait_of(other) == 0
    assert workers.here.open == 0


async def test_failed_probe_opens_the_breaker_again() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_CALLS, endpoint=THERE)
    workers.clock.advance(OPEN_SEC)
    probe = run(endpoint=THERE)
    assert await workers.wait_of(probe) == 0
    probe.started_ms, probe.outcome = NOW_MS, Outcome.FAILED
    workers.here.note(probe)
    await workers.here.sync()
    assert await workers.wait_of(run(endpoint=THERE)) >= OPEN_SEC


async def test_only_one_of_several_workers_probes() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_CALLS, endpoint=THERE)
    await workers.ended(Outcome.FAILED, at=workers.there, endpoint=THERE)
    workers.clock.advance(OPEN_SEC)
    assert await workers.wait_of(run(endpoint=THERE)) == 0
    assert await workers.wait_of(run(endpoint=THERE), workers.there) > 0


async def test_breaker_closes_for_a_worker_that_did_not_probe() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_CALLS, endpoint=THERE)
    await workers.ended(Outcome.FAILED, at=workers.there, endpoint=THERE)
    workers.clock.advance(OPEN_SEC)
    probe = run(endpoint=THERE)
    await workers.wait_of(probe)
    probe.started_ms, probe.outcome = NOW_MS, Outcome.SUCCEEDED
    workers.here.note(probe)
    await workers.here.sync()
    assert await workers.wait_of(run(endpoint=THERE), workers.there) == 0


async def test_after_a_pause_the_retries_of_a_handler_go_on_and_are_counted_anew() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_RUNS)
    workers.clock.advance(OPEN_SEC)
    assert await workers.here.delay([run(), run()]) == {}
    await workers.ended(Outcome.FAILED, MIN_RUNS - 1)
    assert await workers.wait_of(run()) == 0
    await workers.ended(Outcome.FAILED)
    assert await workers.wait_of(run()) >= OPEN_SEC


def test_delayed_run_names_the_endpoint_or_handler_it_waits_for() -> None:
    of_endpoint = failure_of_delayed(dispatch(endpoint=THERE), 31.4)
    assert of_endpoint.type == "BreakerOpen"
    assert of_endpoint.message == (
        "more than half of the calls to https://a.example:443 failed within a minute: calls wait, this one for 31 s"
    )
    assert "runs of handler load in pool etl" in failure_of_delayed(dispatch(), 1).message


async def test_failures_of_one_tenant_do_not_delay_retries_of_another() -> None:
    workers = TwoWorkers()
    await workers.ended(Outcome.FAILED, MIN_RUNS, tenant="broken")
    assert await workers.wait_of(run(tenant="broken")) >= OPEN_SEC
    assert await workers.wait_of(run(tenant="sound")) == 0


def test_no_two_tenants_have_the_same_breaker() -> None:
    one, other = dispatch(tenant="a", pool="b", handler="c/d"), dispatch(tenant="a/b", pool="c", handler="d")
    assert name_of(one) != name_of(other)
