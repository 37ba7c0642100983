"""Claims: the right to run a dispatch, and how long this worker trusts it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noonday.model.claim import ClaimRefused
from noonday.model.errors import SignalsUnavailable
from noonday.model.message import Token
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.signals import Signals
from noonday.worker.active import ActiveRuns
from noonday.worker.connectivity import Connectivity
from noonday.worker.membership import Membership
from noonday.worker.parked import ParkedDispatches
from noonday.worker.run import Run

CLAIM_TRUSTED_FRACTION = 0.7
"""The worker trusts a claim for this fraction of its lifetime."""


@dataclass(eq=False)
class Claims:
    """Claims dispatches in the signals, and sorts out duplicate deliveries."""

    _bus: Bus
    _signals: Signals
    _connectivity: Connectivity
    _membership: Membership
    _active: ActiveRuns
    _parked: ParkedDispatches
    _clock: Clock

    async def claim(self, runs: Sequence[Run]) -> list[Run]:
        """Claim runs, or renew their claims. Returns the runs that have a claim.

        A dispatch that is acked is dropped. A dispatch that another delivery has claimed is parked. Raises SignalsUnavailable.
        """
        if not runs:
            return []
        asked_at = self._clock.monotonic()
        try:
            answers = await self._ask(runs)
        except SignalsUnavailable:
            self._connectivity.note_signals_unavailable()
            raise
        self._connectivity.note_signals_available()
        claimed, acked = [], []
        for run, answer in zip(runs, answers, strict=True):
            active = self._active.find_duplicate(run.dispatch)
            if answer is ClaimRefused.ACKED or (active is not None and active.is_acked):
                acked.append(run.dispatch)
            elif answer is ClaimRefused.CLAIMED or active is not None:
                self._parked.add([run.dispatch])
            else:
                run.token, run.claimed_at = answer, asked_at
                claimed.append(run)
        if acked:
            await self._bus.mark_processed(self._membership.id, acked)
        return claimed

    def stale(self, runs: Sequence[Run]) -> list[Run]:
        """Return runs without a claim, or whose claim may have lapsed so that another worker may have taken over."""
        oldest = self._clock.monotonic() - CLAIM_TRUSTED_FRACTION * self._signals.lapse_sec
        return [run for run in runs if not run.claimed_at >= oldest]

    async def _ask(self, runs: Sequence[Run]) -> Iterable[Token | ClaimRefused]:
        """Claim runs that have no token, and renew the claims of the others. Returns an answer for each, in order."""
        worker = self._membership.id
        new = [run.dispatch for run in runs if run.token is None]
        if len(new) == len(runs):
            return await self._signals.claim(worker, new, self._clock.now_ms())
        known = [(run.dispatch, run.token) for run in runs if run.token is not None]
        claimed = iter(await self._signals.claim(worker, new, self._clock.now_ms()) if new else ())
        renewed = iter(await self._signals.renew(known) if known else ())
        return [next(claimed if run.token is None else renewed) for run in runs]
