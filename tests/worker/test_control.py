"""Rounds of the control loop."""

from collections.abc import Mapping, Sequence
from typing import Any

from noonday.drivers.memory.signals import MemorySignals
from noonday.model.claim import DispatchRef
from noonday.model.execution import Outcome
from noonday.model.ids import ExecutionId
from noonday.model.message import Beat, Bye, Report
from noonday.worker.control import REPORT_START_AFTER_SEC, ControlLoop
from noonday.worker.deadlines import Deadlines
from noonday.worker.revocations import Revocations
from noonday.worker.run import INTERRUPTED, TIMED_OUT
from tests.support.clock import ManualClock
from tests.worker.parts import POOL, Parts

FROZEN_SEC = 20.0


class StallingSignals(MemorySignals):
    """Signals that answer so slowly that the worker may be judged lost meanwhile."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._worker_clock = clock

    async def revoked(self, pool: str, dispatches: Sequence[DispatchRef]) -> Mapping[ExecutionId, str]:
        self._worker_clock.advance(FROZEN_SEC + 0.1)
        return await super().revoked(pool, dispatches)


async def composed(*, stalls_in_a_round: bool = False, **options: Any) -> tuple[Parts, ControlLoop]:
    it = Parts(frozen_after_sec=FROZEN_SEC, **options)
    await it.open()
    signals = StallingSignals(it.clock) if stalls_in_a_round else it.signals
    return it, ControlLoop(
        it.active,
        it.ended,
        it.hosts,
        it.starter,
        it.parked,
        it.membership,
        it.connectivity,
        Deadlines(it.active, it.options.cancel_grace_sec),
        Revocations(signals, it.connectivity, it.active),
        it.heartbeats,
        it.reporter,
        it.acks,
        it.retry_breaker,
        it.throttle,
        it.clock,
        it.metrics,
    )


async def test_a_run_out_of_time_and_a_revoked_run_are_stopped() -> None:
    it, control = await composed()
    late, revoked = await it.started(timeout_sec=4), await it.started()
    await it.signals.revoke(POOL, [(revoked.dispatch.execution_id, 1, "CANCELLED")])
    it.clock.advance(4)
    await control.watch_once()
    assert (late.stop_requested, revoked.stop_requested) == (TIMED_OUT, "CANCELLED")


async def test_the_start_of_a_long_run_is_reported_once() -> None:
    it, control = await composed()
    run = await it.started()
    for _ in range(2):
        it.clock.advance(REPORT_START_AFTER_SEC)
        await control.watch_once()
    await it.reporter.report_once()
    starts = [each for each in await it.bus.entries() if isinstance(each, Report)]
    assert [(each.execution_id, each.outcome) for each in starts] == [(run.dispatch.execution_id, Outcome.STARTED)]


async def test_acks_that_failed_are_sent_again() -> None:
    it, control = await composed()
    run = it.run()
    it.acks.add([run])
    await control.watch_once()
    assert it.bus.done == [run.dispatch]


async def test_a_stalled_worker_interrupts_its_runs_and_changes_its_identity() -> None:
    it, control = await composed()
    former = it.membership.identity
    run, waiting = await it.started(), await it.claimed()
    it.backlog.admit([waiting], it.clock.now_ms())
    it.parked.add([it.run().dispatch])
    it.clock.advance(FROZEN_SEC + 0.1)
    waiting.claimed_at = it.clock.monotonic()
    await control.watch_once()
    assert it.membership.identity is not former
    assert (run.stop_requested, waiting.outcome, len(it.parked)) == (INTERRUPTED, Outcome.INTERRUPTED, 0)
    await it.outbox.send()
    assert [each.worker_id for each in await it.bus.entries() if isinstance(each, Beat)] == [former.id]


async def test_a_former_identity_says_goodbye_after_its_last_report() -> None:
    it, control = await composed()
    former = it.membership.identity
    run = await it.started()
    it.clock.advance(FROZEN_SEC + 0.1)
    await control.watch_once()
    assert it.membership.former == [former]
    await it.reporter.finish_all()
    await control.watch_once()
    await it.outbox.send()
    assert run.outcome is Outcome.INTERRUPTED
    assert [each.worker_id for each in await it.bus.entries() if isinstance(each, Bye)] == [former.id]


async def test_a_worker_that_stalls_within_a_round_changes_its_identity() -> None:
    it, control = await composed(stalls_in_a_round=True)
    former = it.membership.identity
    run = await it.started()
    await control.watch_once()
    assert it.membership.identity is not former
    assert run.stop_requested == INTERRUPTED


async def test_a_round_shows_that_the_loop_does_not_stall() -> None:
    it, control = await composed()
    former = it.membership.identity
    for _ in range(3):
        it.clock.advance(FROZEN_SEC)
        await control.watch_once()
    assert it.membership.identity is former
