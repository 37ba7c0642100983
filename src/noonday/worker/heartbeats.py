"""Heartbeats of a worker, with the progress of its runs, and the Byes of its identities."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.message import Beat, Bye, RunProgress
from noonday.ports.clock import Clock
from noonday.worker.abandoned import Abandoned
from noonday.worker.identity import Identity
from noonday.worker.membership import Membership
from noonday.worker.outbox import Outbox, beats_of
from noonday.worker.reporting import Reporter
from noonday.worker.run import Run

PROGRESS_SEC = 1.0
"""Seconds between two heartbeats while runs report progress."""


@dataclass(eq=False)
class Heartbeats:
    """Shows on the log that the identities of a worker are alive, until a Bye ends each."""

    _membership: Membership
    _abandoned: Abandoned
    _outbox: Outbox
    _reporter: Reporter
    _clock: Clock
    _keyring: Keyring
    _beat_sec: float

    def beat(self, runs: Sequence[Run], now: float) -> None:
        """Send heartbeats if they are due: every `beat_sec`, or every second while runs report progress."""
        identity = self._membership.identity
        mine = [run for run in runs if run.identity is identity]
        updated = [run for run in mine if run.start_reported and run.context and run.context._has_new_heartbeat]
        silence_sec = self._membership.silence_sec(now)
        if silence_sec < self._beat_sec and not (updated and silence_sec >= PROGRESS_SEC):
            return
        if self._outbox.has_beat:
            return  # the previous heartbeat is still unsent: the bus is unavailable
        self._membership.note_heartbeat(now)
        now_ms = self._clock.now_ms()
        for former in self._membership.former:
            # A former identity sends heartbeats until its runs have ended: if it were judged lost, each would use up an attempt.
            self._reporter.enqueue_for(former, Beat(former.id, now_ms))
        if identity.has_joined:
            progress = [found for run in updated if (found := self._progress_of(run))]
            stuck = (*(run.dispatch.execution_id for run in mine if run.stuck), *self._abandoned)
            self._reporter.enqueue_for(identity, *beats_of(identity.id, now_ms, progress, stuck))

    def end_former(self, with_runs: Collection[Identity]) -> None:
        """Send a Bye for each former identity whose last run is reported."""
        for former in [each for each in self._membership.former if each not in with_runs]:
            self._reporter.enqueue_for(former, Bye(former.id, self._clock.now_ms()))
            self._membership.former.remove(former)

    def end_all(self) -> None:
        """Send a Bye for each identity."""
        for identity in (*self._membership.former, self._membership.identity):
            self._reporter.enqueue_for(identity, Bye(identity.id, self._clock.now_ms()))
        self._membership.former.clear()

    def _progress_of(self, run: Run) -> RunProgress | None:
        """Return the latest progress of a run, sealed, or None. Its heartbeat counts as sent from now on."""
        assert run.context is not None
        run.context._has_new_heartbeat = False
        if run.context._reported_progress is None:
            return None
        context = context_of(run.dispatch.tenant, run.dispatch.job_id)
        sealed = self._keyring.seal(run.context._reported_progress, context)
        return RunProgress(run.dispatch.execution_id, run.dispatch.number, sealed)
