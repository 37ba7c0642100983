from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from noonday.model.breaker import BUCKET_MS, CLOSED, MIN_CALLS, OPEN_MS, PROBE, PROBE_MS, WINDOW_MS, Breaker, CallCounts
from noonday.ports.breakers import Breakers
from tests.conformance.conftest import chosen, each
from tests.support.clock import ManualClock
from tests.support.drivers import BREAKERS
from tests.support.factories import NOW_MS

X = "x"
BAD, FINE, PROBED, PROBED_IN_VAIN = (
    CallCounts(MIN_CALLS, MIN_CALLS),
    CallCounts(MIN_CALLS),
    CallCounts(probe_failed=False),
    CallCounts(probe_failed=True),
)


@each(BREAKERS)
async def breakers(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Breakers]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


async def test_breaker_without_calls_is_closed(breakers: Breakers) -> None:
    assert await breakers.ask(X, NOW_MS) == CLOSED
    assert await breakers.add_counts({}, NOW_MS) == {}


async def test_more_than_half_of_enough_calls_open_it(breakers: Breakers) -> None:
    counts = {
        "few": CallCounts(MIN_CALLS - 1, MIN_CALLS - 1),
        "half": CallCounts(MIN_CALLS, MIN_CALLS // 2),
        "more": CallCounts(MIN_CALLS, MIN_CALLS // 2 + 1),
    }
    assert await breakers.add_counts(counts, NOW_MS) == {"few": CLOSED, "half": CLOSED, "more": OPEN_MS}
    assert await breakers.ask("more", NOW_MS + 10) == OPEN_MS - 10
    assert await breakers.ask("half", NOW_MS) == await breakers.ask("few", NOW_MS) == CLOSED


async def test_counts_of_several_workers_add_up(breakers: Breakers) -> None:
    for n in range(MIN_CALLS - 1):
        assert await breakers.add_counts({X: CallCounts(1, 1)}, NOW_MS + n) == {X: CLOSED}
    assert await breakers.add_counts({X: CallCounts(1, 0)}, NOW_MS + 99) == {X: OPEN_MS}


async def test_calls_of_more_than_a_minute_ago_do_not_count(breakers: Breakers) -> None:
    await breakers.add_counts({X: CallCounts(MIN_CALLS - 1, MIN_CALLS - 1)}, NOW_MS)
    assert await breakers.add_counts({X: CallCounts(1, 1)}, NOW_MS + WINDOW_MS + BUCKET_MS) == {X: CLOSED}


async def test_when_its_time_is_over_one_goes_and_the_others_wait(breakers: Breakers) -> None:
    await breakers.add_counts({X: BAD}, NOW_MS)
    over = NOW_MS + OPEN_MS
    assert await breakers.add_counts({X: CallCounts(5, 5)}, over) == {X: PROBE}, (
        "late counts of earlier calls change nothing"
    )
    assert await breakers.ask(X, over) == PROBE
    assert await breakers.ask(X, over + 1) == PROBE_MS - 1


async def test_a_probe_that_succeeds_closes_it_and_the_past_is_forgotten(breakers: Breakers) -> None:
    await breakers.add_counts({X: BAD}, NOW_MS)
    over = NOW_MS + OPEN_MS
    await breakers.ask(X, over)
    assert await breakers.add_counts({X: PROBED}, over + 5) == {X: CLOSED}
    assert await breakers.ask(X, over + 5) == CLOSED
    assert await breakers.add_counts({X: CallCounts(1, 1)}, over + 6) == {X: CLOSED}


async def test_a_probe_that_fails_opens_it_for_as_long_again(breakers: Breakers) -> None:
    await breakers.add_counts({X: BAD}, NOW_MS)
    over = NOW_MS + OPEN_MS
    await breakers.ask(X, over)
    assert await breakers.add_counts({X: PROBED_IN_VAIN}, over + 5) == {X: OPEN_MS}
    assert await breakers.ask(X, over + 6) == OPEN_MS - 1
    assert await breakers.ask(X, over + 5 + OPEN_MS) == PROBE


async def test_probe_without_a_result_is_replaced(breakers: Breakers) -> None:
    await breakers.add_counts({X: BAD}, NOW_MS)
    over = NOW_MS + OPEN_MS
    assert await breakers.ask(X, over) == PROBE
    assert await breakers.ask(X, over + PROBE_MS) == PROBE


async def test_each_name_has_its_own(breakers: Breakers) -> None:
    await breakers.add_counts({X: BAD, "y": FINE}, NOW_MS)
    assert await breakers.ask("y", NOW_MS) == CLOSED


@pytest.mark.parametrize("seed", range(5))
async def test_every_driver_decides_as_the_model_does(breakers: Breakers, seed: int) -> None:
    random, model, now_ms = Random(seed), Breaker(), NOW_MS
    for _ in range(200):
        now_ms += random.choice([1, 500, 7_000, OPEN_MS])
        match random.choice(["tell", "tell", "ask", "probe"]):
            case "tell":
                calls = random.randint(0, 6)
                failures = random.randint(0, calls)
                assert await breakers.add_counts({X: CallCounts(calls, failures)}, now_ms) == {
                    X: model.add_counts(calls, failures, now_ms)
                }
            case "ask":
                assert await breakers.ask(X, now_ms) == model.ask(now_ms)
            case "probe":
                failed = random.random() < 0.5
                found = model.record_probe(failed, now_ms)
                expected = found if failed else model.add_counts(0, 0, now_ms)
                assert await breakers.add_counts({X: CallCounts(probe_failed=failed)}, now_ms) == {X: expected}
