import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noonday.model.claim import FENCED, ClaimRefused
from noonday.model.ids import ExecutionId, JobId, WorkerId
from noonday.model.message import Token
from noonday.ports.signals import Signals
from tests.conformance.conftest import chosen, each
from tests.support.clock import ManualClock
from tests.support.drivers import SIGNALS_THAT_LAPSE_SOON, Capability
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS, POOL, WORKER, dispatch

OTHER = WorkerId("w-2")
A, B = ExecutionId("a"), ExecutionId("b")


# Claims


async def test_a_dispatch_is_claimed_by_one_worker(signals: Signals) -> None:
    one = dispatch()
    assert await signals.claim(WORKER, [one], NOW_MS) == [Token(1, NOW_MS)]
    for worker in (OTHER, WORKER):
        (answer,) = await signals.claim(worker, [one], NOW_MS + 1)
        assert isinstance(answer, ClaimRefused)


async def test_claims_are_answered_in_order(signals: Signals) -> None:
    first, taken, last = dispatch(), dispatch(), dispatch(number=3)
    await signals.claim(OTHER, [taken], NOW_MS)
    answers = await signals.claim(WORKER, [first, taken, last], NOW_MS + 5)
    assert answers[::2] == [Token(1, NOW_MS + 5), Token(3, NOW_MS + 5)]
    assert isinstance(answers[1], ClaimRefused)
    assert await signals.claim(WORKER, [], NOW_MS) == []


async def test_batch_of_thousands_is_claimed_and_acked(signals: Signals) -> None:
    batch = [dispatch(number=number) for number in range(1, 5_001)]
    assert await signals.claim(WORKER, batch, NOW_MS) == [Token(each.number, NOW_MS) for each in batch]
    await signals.ack([(each.execution_id, each.number) for each in batch])
    assert set(await signals.claim(OTHER, batch, NOW_MS + 1)) == {ClaimRefused.ACKED}


async def test_a_dispatch_named_twice_in_one_claim_is_claimed_once(signals: Signals) -> None:
    one = dispatch()
    first, second = await signals.claim(WORKER, [one, one], NOW_MS)
    assert first == Token(1, NOW_MS)
    assert isinstance(second, ClaimRefused)


async def test_the_next_dispatch_of_an_execution_has_a_greater_token(signals: Signals) -> None:
    (first,) = await signals.claim(WORKER, [dispatch("x")], NOW_MS)
    (second,) = await signals.claim(WORKER, [dispatch("x", 2)], NOW_MS - 1000)
    assert isinstance(first, Token)
    assert isinstance(second, Token)
    assert first < second
    assert int(first) < int(second)


async def test_acked_dispatch_is_not_delivered_again(signals: Signals) -> None:
    one = dispatch()
    await signals.claim(WORKER, [one], NOW_MS)
    await signals.ack([(one.execution_id, one.number)])
    assert await signals.claim(OTHER, [one], NOW_MS + 60_000) == [ClaimRefused.ACKED]


async def test_a_renewed_claim_keeps_its_token(signals: Signals) -> None:
    one, two = dispatch(), dispatch(number=2)
    tokens = await signals.claim(WORKER, [one, two], NOW_MS)
    claims = list(zip([one, two], tokens, strict=True))
    assert await signals.renew(claims) == [Token(1, NOW_MS), Token(2, NOW_MS)]  # type: ignore[arg-type]
    (answer,) = await signals.claim(OTHER, [one], NOW_MS + 1)
    assert isinstance(answer, ClaimRefused)
    assert await signals.renew([]) == []


async def test_a_claim_that_was_forgotten_is_made_again(signals: Signals) -> None:
    one = dispatch()
    assert await signals.renew([(one, Token(1, NOW_MS))]) == [Token(1, NOW_MS)]
    (answer,) = await signals.claim(OTHER, [one], NOW_MS + 1)
    assert isinstance(answer, ClaimRefused)


async def test_thousands_of_claims_are_renewed(signals: Signals) -> None:
    batch = [dispatch(number=number) for number in range(1, 2_501)]
    tokens = await signals.claim(WORKER, batch, NOW_MS)
    assert await signals.renew(list(zip(batch, tokens, strict=True))) == tokens  # type: ignore[arg-type]


@pytest.mark.needs(Capability.CLAIMS_LAPSE)
async def test_an_acked_dispatch_is_not_renewed(signals: Signals) -> None:
    one = dispatch()
    await signals.claim(WORKER, [one], NOW_MS)
    await signals.ack([(one.execution_id, one.number)])
    assert await signals.renew([(one, Token(1, NOW_MS))]) == [ClaimRefused.ACKED]


@pytest.mark.needs(Capability.CLAIMS_LAPSE)
async def test_dispatch_acked_without_a_claim_is_acked(signals: Signals) -> None:
    """The claim was lost while the execution ran."""
    one = dispatch()
    await signals.ack([(one.execution_id, one.number)])
    assert await signals.claim(OTHER, [one], NOW_MS) == [ClaimRefused.ACKED]


@pytest.mark.needs(Capability.CLAIMS_LAPSE)
async def test_unacked_dispatch_stays_claimed(signals: Signals) -> None:
    one = dispatch()
    await signals.claim(WORKER, [one], NOW_MS)
    assert await signals.claim(OTHER, [one], NOW_MS + 1) == [ClaimRefused.CLAIMED]


async def test_concurrent_claims_of_one_dispatch_succeed_once(signals: Signals) -> None:
    one = dispatch()
    claims = [signals.claim(WorkerId(f"w-{n}"), [one], NOW_MS) for n in range(8)]
    answers = await asyncio.gather(*claims)
    assert sum(answer == [Token(1, NOW_MS)] for answer in answers) == 1


@pytest.mark.needs(Capability.SEVERAL_LOOPS)
async def test_concurrent_claims_from_several_loops_succeed_once(signals: Signals) -> None:
    one = dispatch()

    def claim(n: int) -> list[Token | ClaimRefused]:
        return asyncio.run(signals.claim(WorkerId(f"w-{n}"), [one], NOW_MS))

    answers = await asyncio.gather(*[asyncio.to_thread(claim, n) for n in range(8)])
    assert sum(answer == [Token(1, NOW_MS)] for answer in answers) == 1


@each(SIGNALS_THAT_LAPSE_SOON)
async def lapsing(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Signals]:
    async with chosen(request).open(tmp_path, clock) as opened:
        yield opened


async def test_claim_lapses_and_the_next_token_is_greater_even_if_the_clock_went_back(lapsing: Signals) -> None:
    one = dispatch()

    async def claimed(at_ms: int) -> Token | None:
        (answer,) = await lapsing.claim(OTHER, [one], at_ms)
        return answer if isinstance(answer, Token) else None

    first = await claimed(NOW_MS)
    second = await eventually(lambda: claimed(NOW_MS - 60_000))
    third = await eventually(lambda: claimed(NOW_MS + 60_000))
    assert [first, second, third] == [
        Token(1, NOW_MS),
        Token(1, NOW_MS + 1, taken_over=True),
        Token(1, NOW_MS + 60_000, taken_over=True),
    ]


async def test_a_lapsed_claim_is_renewed_unless_another_delivery_was_claimed_since(lapsing: Signals) -> None:
    kept, lost = dispatch(), dispatch()

    async def taken_over() -> Token | None:
        (answer,) = await lapsing.claim(OTHER, [lost], NOW_MS + 1)
        return answer if isinstance(answer, Token) else None

    first = await lapsing.claim(WORKER, [kept, lost], NOW_MS)
    assert await eventually(taken_over)
    claims = list(zip([kept, lost], first, strict=True))
    assert await lapsing.renew(claims) == [Token(1, NOW_MS), ClaimRefused.CLAIMED]  # type: ignore[arg-type]


async def test_ack_does_not_lapse_with_the_claim(lapsing: Signals) -> None:
    acked, unacked = dispatch(), dispatch()

    async def lapsed() -> bool:
        (answer,) = await lapsing.claim(OTHER, [unacked], NOW_MS)
        return isinstance(answer, Token)

    await lapsing.claim(WORKER, [acked, unacked], NOW_MS)
    await lapsing.ack([(acked.execution_id, acked.number)])
    await eventually(lapsed)
    assert await lapsing.claim(OTHER, [acked], NOW_MS) == [ClaimRefused.ACKED]


# Revocations


async def test_nothing_starts_before_the_generation_has_begun(signals: Signals) -> None:
    assert not await signals.has_generation(POOL)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) is None
    await signals.begin_generation(POOL)
    assert await signals.has_generation(POOL)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {}


async def test_each_pool_has_its_own_generation(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    assert not await signals.has_generation("mail")
    assert await signals.pre_start_check("mail", [dispatch(A)]) is None


async def test_revocation_is_seen_by_the_pre_start_check(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    await signals.revoke(POOL, [(A, 1, "cancelled by ann")])
    assert await signals.pre_start_check(POOL, [dispatch(A), dispatch(B)]) == {A: "cancelled by ann"}


async def test_revocations_from_before_the_generation_are_seen_in_it(signals: Signals) -> None:
    await signals.revoke(POOL, [(A, 1, "EDITED")])
    await signals.begin_generation(POOL)
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {A: "EDITED"}


async def test_revocation_is_for_one_dispatch(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    await signals.revoke(POOL, [(A, 1, "EDITED")])
    assert await signals.pre_start_check(POOL, [dispatch(A, 2)]) == {}
    assert await signals.revoked(POOL, [(A, 2)]) == {}


async def test_revocation_is_for_one_pool(signals: Signals) -> None:
    await signals.begin_generation("mail")
    await signals.revoke(POOL, [(A, 1, "EDITED")])
    assert await signals.pre_start_check("mail", [dispatch(A)]) == {}


async def test_later_revocation_replaces_an_earlier_one(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    await signals.revoke(POOL, [(A, 1, "EDITED")])
    await signals.revoke(POOL, [(A, 1, "cancelled by ann")])
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {A: "cancelled by ann"}


async def test_pre_start_check_removes_no_revocation(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    await signals.revoke(POOL, [(A, 1, "cancelled by ann")])
    await signals.pre_start_check(POOL, [dispatch(A)])
    assert await signals.pre_start_check(POOL, [dispatch(A)]) == {A: "cancelled by ann"}
    assert await signals.revoked(POOL, [(A, 1)]) == {A: "cancelled by ann"}


async def test_running_execution_learns_of_its_revocation(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    running = [(A, 1), (B, 3)]
    assert await signals.revoked(POOL, running) == {}
    await signals.revoke(POOL, [(B, 3, "cancelled by ann"), (A, 7, "another dispatch")])
    assert await signals.revoked(POOL, running) == {B: "cancelled by ann"}
    assert await signals.revoked(POOL, []) == {}


async def test_every_revocation_is_seen_among_few_or_many(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    flags = [(ExecutionId(f"x-{n}"), n, f"reason {n}") for n in range(3_000)]
    await signals.revoke(POOL, flags)
    few = [(ExecutionId("x-7"), 7), (ExecutionId("x-7"), 8), (ExecutionId("y"), 1), (ExecutionId("x-2999"), 2999)]
    seen = {"x-7": "reason 7", "x-2999": "reason 2999"}
    assert await signals.pre_start_check(POOL, [dispatch(*name) for name in few]) == seen
    assert await signals.revoked(POOL, few) == seen
    everything = [dispatch(execution, number) for execution, number, _ in flags]
    assert await signals.pre_start_check(POOL, everything) == {execution: reason for execution, _, reason in flags}
    assert await signals.pre_start_check(POOL, []) == {}


# Fences


@pytest.mark.parametrize("others", [0, 100])
async def test_fenced_dispatches_of_a_job_do_not_start(signals: Signals, others: int) -> None:
    await signals.begin_generation(POOL)
    for n in range(others):
        await signals.fence(POOL, JobId(f"other-{n}"), NOW_MS)
    before, at, after = (dispatch(job_id="j", fired_ms=NOW_MS + ms) for ms in (-1, 0, 1))
    assert await signals.pre_start_check(POOL, [before, at, after]) == {}
    await signals.fence(POOL, JobId("j"), NOW_MS)
    other = dispatch(fired_ms=NOW_MS - 1)
    fenced = {before.execution_id: FENCED, at.execution_id: FENCED}
    assert await signals.pre_start_check(POOL, [before, at, after, other]) == fenced
    assert await signals.pre_start_check("mail", [before]) is None
    await signals.begin_generation("mail")
    assert await signals.pre_start_check("mail", [before]) == {}


async def test_later_fence_reaches_further(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    one = dispatch(job_id="j", fired_ms=NOW_MS + 5)
    await signals.fence(POOL, JobId("j"), NOW_MS)
    assert await signals.pre_start_check(POOL, [one]) == {}
    await signals.fence(POOL, JobId("j"), NOW_MS + 5)
    assert await signals.pre_start_check(POOL, [one]) == {one.execution_id: FENCED}


async def test_revocation_takes_precedence_over_a_fence(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    await signals.fence(POOL, JobId("j"), NOW_MS)
    await signals.revoke(POOL, [(A, 1, "PAUSED")])
    assert await signals.pre_start_check(POOL, [dispatch(A, job_id="j")]) == {A: "PAUSED"}


async def test_running_execution_goes_on_behind_a_fence(signals: Signals) -> None:
    await signals.begin_generation(POOL)
    one = dispatch(job_id="j")
    await signals.fence(POOL, JobId("j"), NOW_MS)
    assert await signals.revoked(POOL, [(one.execution_id, 1)]) == {}


@pytest.mark.needs(Capability.CLAIMS_LAPSE)
async def test_dispatch_fired_before_the_generation_does_not_start_in_it(signals: Signals) -> None:
    """Claims may be lost and the messages not, so it is unknown whether the dispatches have run."""
    await signals.begin_generation(POOL, NOW_MS)
    before, after = dispatch(fired_ms=NOW_MS), dispatch(fired_ms=NOW_MS + 1)
    assert await signals.pre_start_check(POOL, [before, after]) == {before.execution_id: FENCED}


async def test_heartbeat_of_a_generation_needs_a_generation(signals: Signals) -> None:
    assert await signals.beat(POOL, NOW_MS, 0) is None
    await signals.begin_generation(POOL)
    assert await signals.beat(POOL, NOW_MS, 0) == NOW_MS
    assert await signals.beat(POOL, NOW_MS + 500, NOW_MS) == NOW_MS + 500
    assert await signals.has_generation(POOL)
