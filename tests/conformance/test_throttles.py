from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from noonday.model.endpoint import EndpointLimits
from noonday.model.ids import ExecutionId
from noonday.model.throttle import (
    EXPECTED_MS,
    GO,
    KEPT_MS,
    LATE_MS,
    LATEST_MS,
    SOONEST_MS,
    UNKNOWN_LENGTH_MS,
    WAIT_FACTOR,
    CallEnd,
    CallRequest,
    Throttle,
)
from noonday.ports.throttles import Throttles
from tests.conformance.conftest import chosen, each
from tests.support.clock import ManualClock
from tests.support.drivers import THROTTLES
from tests.support.factories import NOW_MS

LEASE_MS = 60_000
TEN_A_SECOND = EndpointLimits(None, 10.0, 1)
TWO_AT_ONCE = EndpointLimits(2, None)


@each(THROTTLES)
async def throttles(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Throttles]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


def knock(execution: str, limits: EndpointLimits, whom: str = "x", lease_ms: int = LEASE_MS) -> CallRequest:
    return CallRequest(whom, ExecutionId(execution), limits, lease_ms)


async def ask(throttles: Throttles, names: str, limits: EndpointLimits, now_ms: int = NOW_MS) -> list[int]:
    return await throttles.ask([knock(name, limits) for name in names], now_ms)


async def leave(throttles: Throttles, name: str, ran_ms: int = 0) -> None:
    await throttles.end([CallEnd("x", ExecutionId(name), ran_ms)])


def about(*waits_ms: float) -> Any:
    """Waits for a slot, apart from the rounding."""
    return pytest.approx([-wait for wait in waits_ms], abs=1)


async def test_empty_request_is_answered_with_nothing(throttles: Throttles) -> None:
    assert await throttles.ask([], NOW_MS) == []
    await throttles.end([])


async def test_caller_without_a_token_gets_the_next_free_instant(throttles: Throttles) -> None:
    assert await ask(throttles, "abc", TEN_A_SECOND) == [GO, 100, 200]


async def test_a_reservation_is_paid_for(throttles: Throttles) -> None:
    await ask(throttles, "abc", TEN_A_SECOND)
    assert await ask(throttles, "c", TEN_A_SECOND, NOW_MS + 50) == [150]
    assert await ask(throttles, "bd", TEN_A_SECOND, NOW_MS + 100) == [GO, 200]
    assert await ask(throttles, "c", TEN_A_SECOND, NOW_MS + 200) == [GO]


async def test_a_reservation_is_used_once(throttles: Throttles) -> None:
    await ask(throttles, "ab", TEN_A_SECOND)
    assert await ask(throttles, "b", TEN_A_SECOND, NOW_MS + 100) == [GO]
    assert await ask(throttles, "b", TEN_A_SECOND, NOW_MS + 100) == [100]


async def test_unused_reservation_is_forgotten(throttles: Throttles) -> None:
    await ask(throttles, "abc", TEN_A_SECOND)
    late_ms = NOW_MS + 100 + KEPT_MS
    assert await ask(throttles, "xb", TEN_A_SECOND, late_ms) == [GO, 100]


async def test_a_burst_goes_at_once_and_comes_back_with_time(throttles: Throttles) -> None:
    limits = EndpointLimits(None, 1.0, 3)
    assert await ask(throttles, "abcd", limits) == [GO, GO, GO, 1000]
    assert await ask(throttles, "d", limits, NOW_MS + 1000) == [GO]
    assert await ask(throttles, "efgh", limits, NOW_MS + 60_000) == [GO, GO, GO, 1000]


async def test_late_callers_are_not_admitted_all_at_once(throttles: Throttles) -> None:
    names = [f"{n:03}" for n in range(100)]
    knocks = [knock(name, TEN_A_SECOND) for name in names]
    await throttles.ask(knocks, NOW_MS)
    waits = await throttles.ask(knocks[1:], NOW_MS + 60_000)
    assert waits.count(GO) == 1 + LATE_MS // 100
    assert len(set(waits)) == len(waits) - waits.count(GO) + 1


async def test_no_more_calls_than_the_limit_are_in_flight(throttles: Throttles) -> None:
    waits = await ask(throttles, "abcde", TWO_AT_ONCE)
    assert waits[:2] == [GO, GO]
    assert all(-UNKNOWN_LENGTH_MS <= wait <= -SOONEST_MS for wait in waits[2:])
    assert len(set(waits)) == 4
    await leave(throttles, "a")
    later = await ask(throttles, "cd", TWO_AT_ONCE, NOW_MS + 500)
    assert later[0] == GO > later[1]


async def test_admitted_caller_may_ask_again(throttles: Throttles) -> None:
    limits = EndpointLimits(1, 10.0)
    assert await ask(throttles, "aa", limits) == [GO, GO]
    await leave(throttles, "a")
    assert await ask(throttles, "b", limits, NOW_MS + 50) == [50]


async def test_caller_that_waits_for_a_slot_has_used_no_token(throttles: Throttles) -> None:
    limits = EndpointLimits(1, 10.0)
    assert await ask(throttles, "ab", limits) == [GO, -SOONEST_MS]
    await leave(throttles, "a")
    assert await ask(throttles, "b", limits, NOW_MS + 100) == [GO]


async def test_slot_that_is_not_returned_is_freed_when_its_lease_ends(throttles: Throttles) -> None:
    await throttles.ask([knock("a", EndpointLimits(1, None), lease_ms=1000)], NOW_MS)
    assert (await ask(throttles, "b", EndpointLimits(1, None), NOW_MS + 999))[0] < 0
    assert await ask(throttles, "b", EndpointLimits(1, None), NOW_MS + 1000) == [GO]


async def test_new_caller_leaves_a_free_slot_to_an_expected_caller(throttles: Throttles) -> None:
    one = EndpointLimits(1, None)
    await ask(throttles, "ab", one)
    await leave(throttles, "a")
    assert (await ask(throttles, "c", one, NOW_MS + 1000))[0] < 0
    assert await ask(throttles, "b", one, NOW_MS + 1000) == [GO]


async def test_caller_that_does_not_come_back_is_not_waited_for(throttles: Throttles) -> None:
    one = EndpointLimits(1, None)
    await ask(throttles, "ab", one)
    await leave(throttles, "a")
    assert await ask(throttles, "c", one, NOW_MS + 1000 + EXPECTED_MS) == [GO]


async def test_waits_follow_how_long_calls_take_and_how_many_are_before(throttles: Throttles) -> None:
    await ask(throttles, "a", TWO_AT_ONCE)
    await leave(throttles, "a", ran_ms=1000)
    turn_ms = WAIT_FACTOR * 1000 / 2
    assert await ask(throttles, "abcde", TWO_AT_ONCE) == about(GO, GO, turn_ms, 2 * turn_ms, 3 * turn_ms)
    await leave(throttles, "a", ran_ms=6000)
    await leave(throttles, "b", ran_ms=6000)
    await ask(throttles, "cd", TWO_AT_ONCE, NOW_MS + 500)
    mean_ms = 2000 + (6000 - 2000) / 5
    assert await ask(throttles, "ef", TWO_AT_ONCE, NOW_MS + 500) == about(
        WAIT_FACTOR * mean_ms / 2, WAIT_FACTOR * mean_ms
    )


async def test_waiting_callers_keep_their_order(throttles: Throttles) -> None:
    one = EndpointLimits(1, None)
    await ask(throttles, "a", one)
    await leave(throttles, "a", ran_ms=10_000)
    await ask(throttles, "a", one)
    for n, name in enumerate("zyx"):
        await ask(throttles, name, one, NOW_MS + n)
    assert await ask(throttles, "zyx", one, NOW_MS + 5) == about(*(WAIT_FACTOR * 10_000 * n for n in (1, 2, 3)))


async def test_wait_for_a_slot_is_at_most_half_a_minute(throttles: Throttles) -> None:
    await ask(throttles, "a", EndpointLimits(1, None))
    await leave(throttles, "a", ran_ms=1000)
    knocks = [knock(f"{n}", EndpointLimits(1, None)) for n in range(200)]
    waits = await throttles.ask(knocks, NOW_MS)
    assert min(waits) >= -LATEST_MS
    assert len(set(waits[100:])) > 90


async def test_each_endpoint_has_its_own(throttles: Throttles) -> None:
    knocks = [knock("a", TWO_AT_ONCE, "x"), knock("b", TEN_A_SECOND, "y"), knock("c", TEN_A_SECOND, "z")]
    assert await throttles.ask(knocks, NOW_MS) == [GO, GO, GO]


async def test_lifted_limit_blocks_no_caller(throttles: Throttles) -> None:
    await ask(throttles, "abc", TWO_AT_ONCE)
    assert await ask(throttles, "de", EndpointLimits(20, None), NOW_MS + 1) == [GO, GO]


@pytest.mark.parametrize("seed", range(6))
async def test_every_driver_decides_as_the_model_does(throttles: Throttles, seed: int) -> None:
    random, model, now_ms = Random(seed), Throttle(), NOW_MS
    limits = random.choice([EndpointLimits(3, 7.0, 2), EndpointLimits(None, 3.3, 4), EndpointLimits(2, None)])
    for _ in range(300):
        now_ms += random.choice([0, 1, 90, 700])
        name = ExecutionId(f"{random.randrange(20)}")
        if random.random() < 0.7:
            expected = model.ask(name, limits, 1_000_000, now_ms)
            assert await throttles.ask([CallRequest("x", name, limits, 1_000_000)], now_ms) == [expected]
        else:
            ran_ms = random.choice([0, 5, 333, 60_000])
            model.end(name, ran_ms)
            await throttles.end([CallEnd("x", name, ran_ms)])
