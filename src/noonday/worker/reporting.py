"""Reporting: from ended runs over the outbox to the log, and from there to the acks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from noonday.crypto.keyring import Keyring
from noonday.model.errors import NoondayError
from noonday.model.message import LogEntry
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.runtime.metrics import Metrics
from noonday.worker.acks import Acks
from noonday.worker.active import ActiveRuns
from noonday.worker.capacity import Capacity
from noonday.worker.ended import EndedRuns
from noonday.worker.identity import Identity
from noonday.worker.outbox import Item, Outbox
from noonday.worker.retry_breaker import RetryBreaker
from noonday.worker.rounds import Rounds
from noonday.worker.run import Run
from noonday.worker.sharing import SlotShares
from noonday.worker.throttling import EndpointThrottle

MAX_REFUSED_SEC = 60.0
"""Seconds that the log may refuse reports, although it answers, before the worker should be restarted."""
_MAX_BATCH = 5_000
"""Maximum number of ended runs that are reported in one batch."""


@dataclass(eq=False)
class Reporter:
    """Frees the slots of ended runs, sends their reports to the log, and acks their dispatches."""

    _bus: Bus
    _outbox: Outbox
    _ended: EndedRuns
    _active: ActiveRuns
    _acks: Acks
    _capacity: Capacity
    _shares: SlotShares
    _retry_breaker: RetryBreaker
    _throttle: EndpointThrottle
    _rounds: Rounds
    _clock: Clock
    _keyring: Keyring
    _metrics: Metrics
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _refused_since: float | None = None
    """Time when the log began to answer requests and to refuse reports; None if it accepts them or does not answer."""

    async def run_forever(self) -> None:
        while True:
            if self._outbox.unavailable_since is None:
                await self._ended.wake.wait()
            else:
                await self._clock.sleep(self._outbox.wait_sec)
                await self.note_refusal()
            self._ended.wake.clear()
            await self.report_once()

    async def report_once(self) -> None:
        """Send all reports, and ack their dispatches in the signals.

        If the bus is unavailable, one try is made: the rest waits in the outbox.
        """
        while await self._send_ended():
            await self._acks.send_after_release()
            if self._outbox.unavailable_since is not None:
                break
            self._refused_since = None
        self._rounds.start_wake.set()

    async def send_all(self) -> None:
        """Send reports until none is left. Nothing is acked, so no report waits for the signals."""
        while await self._send_ended():
            if self._outbox:
                await self._clock.sleep(self._outbox.wait_sec)

    async def finish_all(self) -> int:
        """Wait until all started runs have ended, and report them. Returns how many runs were reported."""
        count = 0
        while self._active or self._ended:
            count += len(self._ended)
            await self.report_once()
            if self._active:
                await self._ended.wake.wait()
                self._ended.wake.clear()
        return count

    def enqueue(self, *items: Item) -> None:
        """Add items to the outbox, and wake the loop that reports."""
        self._outbox.add(items)
        self._ended.wake.set()

    def enqueue_for(self, identity: Identity, *entries: LogEntry) -> None:
        """Add entries of an identity to the outbox. An identity that has not joined is unknown on the log and sends nothing."""
        if identity.has_joined:
            self.enqueue(*(Item(identity.partition, entry) for entry in entries))

    async def note_refusal(self) -> None:
        """Note whether a log that accepts no reports answers other requests."""
        try:
            await self._bus.partitions()
        except NoondayError:
            self._refused_since = None
        else:
            self._refused_since = self._refused_since or self._clock.monotonic()

    def can_report(self) -> bool:
        """Return whether reports can reach the log. False if the log answers and has refused all reports for MAX_REFUSED_SEC."""
        since = self._refused_since
        return since is None or self._clock.monotonic() - since < MAX_REFUSED_SEC

    async def _send_ended(self) -> bool:
        """Send the pending reports to the log, once. Returns whether there were any."""
        async with self._lock:
            if not (self._ended or self._outbox):
                return False
            runs = self._active.without_abandoned(self._ended.take(_MAX_BATCH))
            self._release(runs)
            self._outbox.add(
                [Item(run.identity.partition, run.report(run.identity.id, self._keyring), run) for run in runs]
            )
            self._acks.add(item.run for item in await self._outbox.send() if item.run is not None)
        return True

    def _release(self, runs: Sequence[Run]) -> None:
        """Free the slots of ended runs, and count the runs in breakers, throttles and metrics."""
        self._capacity.release(runs)
        started = self._active.remove(runs)
        self._capacity.end(started)
        for run in started:
            self._shares.ended(run)
        metrics = self._metrics.runs
        for run in runs:
            self._retry_breaker.note(run)
            self._throttle.note(run)
            if run.started_ms:
                late_ms, ran_ms = run.started_ms - run.dispatch.due_ms, run.ended_ms - run.started_ms
                metrics.count_start(run.dispatch.pool, late_ms / 1000, ran_ms / 1000)
            metrics.count_end(run.outcome.name)
