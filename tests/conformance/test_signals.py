import asyncio

from noonday.model.ids import ExecutionId, WorkerId
from noonday.model.message import Token
from noonday.ports.signals import Signals
from tests.support.factories import NOW_MS, POOL, WORKER, dispatch

OTHER = WorkerId("w-2")
A, B = ExecutionId("a"), ExecutionId("b")


# Claims


async def test_a_dispatch_is_claimed_by_one_worker(signals: Signals) -> None:
    one = dispatch()
    assert await signals.claim(WORKER, [one], NOW_MS) == [Token(1, NOW_MS)]
    assert await signals.claim(OTHER, [one], NOW_MS + 1) == [None]
    assert await signals.claim(WORKER, [one], NOW_MS + 2) == [None]


async def test_claims_are_answered_in_order(signals: Signals) -> None:
    first, taken, last = dispatch(), dispatch(), dispatch(number=3)
    await signals.claim(OTHER, [taken], NOW_MS)
    answers = await signals.claim(WORKER, [first, taken, last], NOW_MS + 5)
    assert answers == [Token(1, NOW_MS + 5), None, Token(3, NOW_MS + 5)]
    assert await signals.claim(WORKER, [], NOW_MS) == []


async def test_a_dispatch_named_twice_in_one_claim_is_claimed_once(signals: Signals) -> None:
    one = dispatch()
    assert await signals.claim(WORKER, [one, one], NOW_MS) == [Token(1, NOW_MS), None]


async def test_the_next_dispatch_of_an_execution_has_a_greater_token(signals: Signals) -> None:
    (first,) = await signals.claim(WORKER, [dispatch("x")], NOW_MS)
    (second,) = await signals.claim(WORKER, [dispatch("x", 2)], NOW_MS - 1000)
    assert first is not None
    assert second is not None
    assert first < second
    assert int(first) < int(second)


async def test_what_the_log_was_told_of_stays_claimed(signals: Signals) -> None:
    one = dispatch()
    await signals.claim(WORKER, [one], NOW_MS)
    await signals.told([one])
    assert await signals.claim(OTHER, [one], NOW_MS + 60_000) == [None]


async def test_of_many_who_claim_at_once_one_gets_it(signals: Signals) -> None:
    one = dispatch()

    def claim(n: int) -> list[Token | None]:
        return asyncio.run(signals.claim(WorkerId(f"w-{n}"), [one], NOW_MS))

    answers = await asyncio.gather(*[asyncio.to_thread(claim, n) for n in range(8)])
    assert sum(answer == [Token(1, NOW_MS)] for answer in answers) == 1


# Flags


async def test_nothing_starts_before_the_era_has_begun(signals: Signals) -> None:
    assert not await signals.has_era(POOL)
    assert await signals.look(POOL, [(A, 1)]) is None
    await signals.begin_era(POOL)
    assert await signals.has_era(POOL)
    assert await signals.look(POOL, [(A, 1)]) == {}


async def test_each_pool_has_its_own_era(signals: Signals) -> None:
    await signals.begin_era(POOL)
    assert not await signals.has_era("mail")
    assert await signals.look("mail", [(A, 1)]) is None


async def test_a_flag_is_seen_at_the_last_look(signals: Signals) -> None:
    await signals.begin_era(POOL)
    await signals.raise_flags(POOL, [(A, 1, "cancelled by ann")])
    assert await signals.look(POOL, [(A, 1), (B, 1)]) == {A: "cancelled by ann"}


async def test_flags_that_were_raised_before_the_era_are_seen_in_it(signals: Signals) -> None:
    await signals.raise_flags(POOL, [(A, 1, "EDITED")])
    await signals.begin_era(POOL)
    assert await signals.look(POOL, [(A, 1)]) == {A: "EDITED"}


async def test_a_flag_is_for_one_dispatch(signals: Signals) -> None:
    await signals.begin_era(POOL)
    await signals.raise_flags(POOL, [(A, 1, "EDITED")])
    assert await signals.look(POOL, [(A, 2)]) == {}
    assert await signals.wanted(POOL, [(A, 2)]) == {}


async def test_a_flag_is_for_one_pool(signals: Signals) -> None:
    await signals.begin_era("mail")
    await signals.raise_flags(POOL, [(A, 1, "EDITED")])
    assert await signals.look("mail", [(A, 1)]) == {}


async def test_a_later_wish_replaces_an_earlier_one(signals: Signals) -> None:
    await signals.begin_era(POOL)
    await signals.raise_flags(POOL, [(A, 1, "EDITED")])
    await signals.raise_flags(POOL, [(A, 1, "cancelled by ann")])
    assert await signals.look(POOL, [(A, 1)]) == {A: "cancelled by ann"}


async def test_looking_takes_no_flag_down(signals: Signals) -> None:
    await signals.begin_era(POOL)
    await signals.raise_flags(POOL, [(A, 1, "cancelled by ann")])
    await signals.look(POOL, [(A, 1)])
    assert await signals.look(POOL, [(A, 1)]) == {A: "cancelled by ann"}
    assert await signals.wanted(POOL, [(A, 1)]) == {A: "cancelled by ann"}


async def test_what_runs_learns_that_it_is_asked_to_end(signals: Signals) -> None:
    await signals.begin_era(POOL)
    running = [(A, 1), (B, 3)]
    assert await signals.wanted(POOL, running) == {}
    await signals.raise_flags(POOL, [(B, 3, "cancelled by ann"), (A, 7, "another dispatch")])
    assert await signals.wanted(POOL, running) == {B: "cancelled by ann"}
    assert await signals.wanted(POOL, []) == {}
