from random import Random

import pytest

from noonday.model.ids import TenantId
from noonday.model.rate import Rate, TokenGrant, TokenRequest
from noonday.ports.tokens import Tokens
from tests.support.factories import NOW_MS

ACME, GLOBEX = TenantId("acme"), TenantId("globex")
TEN_A_SECOND = Rate(10, burst=5)


async def take(tokens: Tokens, count: int, after_ms: int = 0, rate: Rate = TEN_A_SECOND) -> TokenGrant:
    (granted,) = await tokens.take([TokenRequest(ACME, rate, count)], NOW_MS + after_ms)
    return granted


async def test_burst_is_granted_at_once_and_then_one_token_an_interval(tokens: Tokens) -> None:
    assert (await take(tokens, 7)).count == 5
    assert (await take(tokens, 7, 99)).count == 0
    assert (await take(tokens, 7, 101)).count == 1
    assert (await take(tokens, 7, 350)).count == 2


async def test_partial_grant_names_when_more_tokens_come(tokens: Tokens) -> None:
    assert (await take(tokens, 3)).more_ms == NOW_MS
    granted = await take(tokens, 3)
    assert granted.count == 2
    assert NOW_MS < granted.more_ms <= NOW_MS + 101
    assert (await take(tokens, 1, granted.more_ms - NOW_MS)).count == 1


async def test_unused_tokens_can_be_returned(tokens: Tokens) -> None:
    await take(tokens, 5)
    assert (await take(tokens, -2, 1)).count == -2
    assert (await take(tokens, 5, 1)).count == 2


async def test_tokens_accumulate_to_at_most_a_burst(tokens: Tokens) -> None:
    await take(tokens, 5)
    assert (await take(tokens, -9, 1)).count == -9
    assert (await take(tokens, 100, 3_600_000)).count == 5


async def test_clock_that_was_ahead_for_a_while_spends_no_more_than_a_burst(tokens: Tokens) -> None:
    await take(tokens, 5, 86_400_000)
    granted = await take(tokens, 1, 0)
    assert granted.count == 0
    assert granted.more_ms <= NOW_MS + 101
    assert (await take(tokens, 1, 101)).count == 1


async def test_tenants_do_not_take_from_each_other(tokens: Tokens) -> None:
    asks = [TokenRequest(ACME, TEN_A_SECOND, 9), TokenRequest(GLOBEX, Rate(1, burst=1), 9)]
    assert [each.count for each in await tokens.take(asks, NOW_MS)] == [5, 1]
    assert [each.count for each in await tokens.take(asks, NOW_MS + 200)] == [2, 0]
    assert await tokens.take([], NOW_MS) == []


async def test_another_rate_counts_from_now_on(tokens: Tokens) -> None:
    await take(tokens, 5)
    assert (await take(tokens, 50, 100, Rate(1_000, burst=500))).count == 50


@pytest.mark.parametrize("per_sec", [0.5, 3, 7.7, 1_000])
async def test_no_more_than_the_rate_and_a_burst_is_granted(tokens: Tokens, per_sec: float) -> None:
    random, got, now_ms = Random(str(per_sec)), 0, 0
    rate = Rate(per_sec, burst=4)
    for _ in range(60):
        got += (await take(tokens, random.randrange(1, 9), now_ms, rate)).count
        assert got <= 4 + now_ms * per_sec / 1000 + 1e-3
        now_ms += random.randrange(300)
    assert got >= min(4 + now_ms * per_sec / 1000 * 0.5, 60)
