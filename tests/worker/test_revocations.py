"""Revocations of runs in progress."""

import pytest

from noonday.model.execution import SPARES_RUNNING
from noonday.worker.revocations import Revocations
from noonday.worker.run import Run
from tests.worker.parts import POOL, Parts


async def parts() -> Parts:
    made = Parts()
    await made.open()
    return made


async def stop_revoked(it: Parts, run: Run, reason: str, number: int = 1) -> None:
    await it.signals.revoke(POOL, [(run.dispatch.execution_id, number, reason)])
    await Revocations(it.signals, it.connectivity, it.active).stop_revoked()


async def test_a_revoked_run_is_asked_to_stop() -> None:
    it = await parts()
    run = await it.started()
    await stop_revoked(it, run, "CANCELLED")
    assert run.stop_requested == "CANCELLED"


@pytest.mark.parametrize("reason", sorted(SPARES_RUNNING))
async def test_a_reason_that_spares_running_handlers_stops_nothing(reason: str) -> None:
    it = await parts()
    run = await it.started()
    await stop_revoked(it, run, reason)
    assert run.stop_requested is None


async def test_the_revocation_of_another_dispatch_stops_nothing() -> None:
    it = await parts()
    run = await it.started()
    await stop_revoked(it, run, "CANCELLED", number=2)
    assert run.stop_requested is None


async def test_a_run_that_has_completed_itself_is_not_stopped() -> None:
    it = await parts()
    run = await it.started()
    assert run.context is not None
    run.context._completed = True
    await stop_revoked(it, run, "CANCELLED")
    assert run.stop_requested is None


async def test_an_outage_is_noted() -> None:
    it = await parts()
    await it.started()
    it.signals.is_away = True
    await Revocations(it.signals, it.connectivity, it.active).stop_revoked()
    assert it.connectivity.reasons_not_ready()
