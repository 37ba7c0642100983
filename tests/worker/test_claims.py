"""Claims of dispatches."""

import pytest

from noonday.model.claim import ClaimRefused
from noonday.model.errors import SignalsUnavailable
from noonday.worker.claims import CLAIM_TRUSTED_FRACTION
from tests.worker.parts import LAPSE_SEC, Parts


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


async def test_a_claimed_run_has_a_token() -> None:
    it = await parts()
    run = it.run()
    assert await it.claims.claim([run]) == [run]
    assert run.token is not None
    assert it.claims.stale([run]) == []


async def test_acked_dispatch_is_dropped_and_marked_processed_on_the_bus() -> None:
    it = await parts()
    run = it.run()
    it.signals.refused[run.dispatch.execution_id] = ClaimRefused.ACKED
    assert await it.claims.claim([run]) == []
    assert it.bus.done == [run.dispatch]
    assert len(it.parked) == 0


async def test_a_dispatch_that_another_delivery_has_claimed_is_parked() -> None:
    it = await parts()
    run = it.run()
    it.signals.refused[run.dispatch.execution_id] = ClaimRefused.CLAIMED
    assert await it.claims.claim([run]) == []
    assert it.parked.take() == [run.dispatch]


async def test_a_duplicate_of_an_active_run_is_parked_until_the_log_has_its_end() -> None:
    it = await parts()
    active = await it.started(execution="x")
    it.signals._claims.clear()  # the claim has lapsed
    duplicate = it.run(execution="x")
    assert await it.claims.claim([duplicate]) == []
    assert it.parked.take() == [duplicate.dispatch]
    active.is_acked = True
    assert await it.claims.claim([duplicate]) == []
    assert it.bus.done == [duplicate.dispatch]


async def test_a_claim_is_stale_after_its_trusted_time_and_fresh_after_its_renewal() -> None:
    it = await parts()
    run = await it.claimed()
    token = run.token
    it.clock.advance(CLAIM_TRUSTED_FRACTION * LAPSE_SEC + 0.1)
    assert it.claims.stale([run]) == [run]
    assert await it.claims.claim([run]) == [run]
    assert (run.token, it.claims.stale([run])) == (token, [])


async def test_new_claims_and_renewals_are_answered_in_order() -> None:
    it = await parts()
    known, new = await it.claimed(), it.run()
    assert await it.claims.claim([new, known]) == [new, known]


async def test_an_outage_is_noted_and_raised() -> None:
    it = await parts()
    it.signals.is_away = True
    with pytest.raises(SignalsUnavailable):
        await it.claims.claim([it.run()])
    assert it.connectivity.reasons_not_ready()
    it.signals.is_away = False
    await it.claims.claim([it.run()])
    assert it.connectivity.reasons_not_ready() == []
