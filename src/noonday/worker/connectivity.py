"""Connectivity of a worker: which servers it reaches, and whether a recorder may have judged it lost."""

import contextlib
from dataclasses import dataclass

from noonday.model.errors import SignalsUnavailable
from noonday.ports.clock import Clock
from noonday.ports.signals import Signals
from noonday.worker.membership import Membership
from noonday.worker.options import WorkerOptions
from noonday.worker.outbox import Outbox

MAX_SIGNALS_OUTAGE_SEC = 2.0
"""The worker takes nothing more once the signals are unavailable for longer: other workers can claim the dispatches."""


@dataclass(eq=False)
class Connectivity:
    """Availability of bus and signals, and the last round of the control loop."""

    _signals: Signals
    _outbox: Outbox
    _membership: Membership
    _clock: Clock
    _options: WorkerOptions
    _signals_unavailable_since: float | None = None
    """Time when the signals became unavailable, by the monotonic clock; None if they are available."""
    _last_round: float = 0.0
    """Time when the control loop last was at work, by the monotonic clock."""

    def note_signals_available(self) -> None:
        self._signals_unavailable_since = None

    def note_signals_unavailable(self) -> None:
        if self._signals_unavailable_since is None:
            self._signals_unavailable_since = self._clock.monotonic()

    def note_round(self) -> None:
        """Note that the control loop is at work."""
        self._last_round = self._clock.monotonic()

    async def probe_signals(self) -> None:
        """Find out whether the signals are available again: a worker that takes nothing makes no other call to them."""
        if self._signals_unavailable_since is not None:
            with contextlib.suppress(SignalsUnavailable):
                await self._signals.has_generation(next(iter(self._options.concurrency)))
                self._signals_unavailable_since = None

    def may_take(self, now: float) -> bool:
        """Return whether the worker may take dispatches: it can send heartbeats, and claim what it takes."""
        bus_since, signals_since = self._outbox.unavailable_since, self._signals_unavailable_since
        if bus_since is not None and now - bus_since > self._options.beat_sec:
            return False
        return signals_since is None or now - signals_since <= MAX_SIGNALS_OUTAGE_SEC

    def may_be_judged_lost(self, now: float) -> bool:
        """Return whether the current identity may have been judged lost.

        That is so if the control loop stalled, or reached neither bus nor signals, for `frozen_after_sec`. An identity that has
        not joined yet cannot be judged.
        """
        longest = self._options.frozen_after_sec
        if longest is None or not self._membership.identity.has_joined:
            return False
        bus_since, signals_since = self._outbox.unavailable_since, self._signals_unavailable_since
        cut_off = bus_since is not None and signals_since is not None
        unavailable_since = max(bus_since or 0.0, signals_since or 0.0, self._membership.joined_at)
        return (cut_off and now - unavailable_since > longest) or now - self._last_round > longest

    def reasons_not_ready(self) -> list[str]:
        """Return what this worker does not reach, as reasons why it is not ready."""
        reasons = []
        if self._outbox.unavailable_since is not None:
            outage_sec = self._clock.monotonic() - self._outbox.unavailable_since
            reasons.append(f"the log has accepted no report for {outage_sec:.0f} s")
        if not self._membership.identity.has_joined:
            reasons.append("the worker has not joined its pools")
        if self._signals_unavailable_since is not None:
            outage_sec = self._clock.monotonic() - self._signals_unavailable_since
            reasons.append(f"claims and revocations have been unavailable for {outage_sec:.0f} s")
        return reasons
