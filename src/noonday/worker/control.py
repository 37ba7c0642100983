"""The control loop: what a worker does about its runs and its servers, four times a second."""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from noonday.ports.clock import Clock
from noonday.runtime.metrics import Metrics
from noonday.worker.acks import Acks
from noonday.worker.active import ActiveRuns
from noonday.worker.connectivity import Connectivity
from noonday.worker.deadlines import Deadlines, warn_of_blocking
from noonday.worker.ended import EndedRuns
from noonday.worker.heartbeats import Heartbeats
from noonday.worker.hosts import Hosts
from noonday.worker.membership import Membership
from noonday.worker.outbox import Item
from noonday.worker.parked import ParkedDispatches
from noonday.worker.reporting import Reporter
from noonday.worker.retry_breaker import RetryBreaker
from noonday.worker.revocations import Revocations
from noonday.worker.run import Run
from noonday.worker.starting import Starter
from noonday.worker.throttling import EndpointThrottle

log = structlog.get_logger("noonday.worker")
REPORT_START_AFTER_SEC = 1.0
"""A run that lasts longer reports its start, a shorter one only its end."""
_ROUND_SEC = 0.25
"""Seconds between two rounds."""


@dataclass(eq=False)
class ControlLoop:
    """Enforces deadlines, stops revoked runs, sends heartbeats, and changes the identity of a worker that may be judged lost."""

    _active: ActiveRuns
    _ended: EndedRuns
    _hosts: Hosts
    _starter: Starter
    _parked: ParkedDispatches
    _membership: Membership
    _connectivity: Connectivity
    _deadlines: Deadlines
    _revocations: Revocations
    _heartbeats: Heartbeats
    _reporter: Reporter
    _acks: Acks
    _retry_breaker: RetryBreaker
    _throttle: EndpointThrottle
    _clock: Clock
    _metrics: Metrics

    async def run_forever(self) -> None:
        while True:
            await self._clock.sleep(_ROUND_SEC)
            await self.watch_once()

    async def watch_once(self) -> None:
        """Run one round: deadlines, revocations, shared breakers, start reports, heartbeats and acks."""
        now = self._clock.monotonic()
        self._change_identity_if_stalled()
        runs = self._active.begun()
        self._deadlines.enforce(runs, now)
        warn_of_blocking(self._hosts.stepping, now)
        await self._revocations.stop_revoked()
        await self._retry_breaker.sync()
        await self._throttle.release()
        self._metrics.breakers_open.set(self._retry_breaker.open)
        await self._connectivity.probe_signals()
        self._report_long_starts(runs, now)
        self._heartbeats.beat(runs, now)
        self._end_former_identities()
        await self._acks.send_again()
        self._change_identity_if_stalled()

    def _change_identity_if_stalled(self) -> None:
        """Change the identity if the loop stalled since it was last at work: between two rounds, or within one."""
        if self._connectivity.may_be_judged_lost(self._clock.monotonic()):
            self._change_identity()
        self._connectivity.note_round()

    def _change_identity(self) -> None:
        """Continue under a new identity: the current one may have been judged lost.

        Runs of the former identity are asked to stop, and are reported under it. A run that does not end within the cancel grace
        is abandoned. Nothing here waits: deadlines, revocations and heartbeats continue, and the take loop joins under the new
        identity.
        """
        log.warning("control loop stalled or cut off; continuing under a new identity", worker=self._membership.id)
        self._starter.return_unstarted()
        self._parked.clear()
        self._membership.change_identity()
        self._active.interrupt_all()

    def _report_long_starts(self, runs: Iterable[Run], now: float) -> None:
        """Report the start of runs that last over REPORT_START_AFTER_SEC: from then on the store knows which worker runs them."""
        unreported = [run for run in runs if not run.start_reported and now - run.begun_at >= REPORT_START_AFTER_SEC]
        for run in unreported:
            run.start_reported = True
            self._reporter.enqueue(Item(run.identity.partition, run.start_report(), run))

    def _end_former_identities(self) -> None:
        if self._membership.former:
            self._heartbeats.end_former({run.identity for run in (*self._active.all(), *self._ended)})
