"""Deadlines of runs: timeouts, heartbeat timeouts, and the cancel grace after which a run is abandoned."""

from collections.abc import Iterable

import structlog

from noonday.model.handler import Mode
from noonday.worker.active import ActiveRuns
from noonday.worker.run import HEARTBEAT, TIMED_OUT, Run

log = structlog.get_logger("noonday.worker")
KILL_CONFIRM_SEC = 0.5
"""Seconds to wait for the death of a process that was killed."""
BLOCKING_STEP_SEC = 1.0
"""A coroutine that keeps its loop for longer is logged as blocking."""


class Deadlines:
    """Stops runs that are out of time, and abandons those that ignore it."""

    def __init__(self, active: ActiveRuns, cancel_grace_sec: float, lease_sec: float = 0.0) -> None:
        """`lease_sec`: longest time between two heartbeats of a remote worker, from which it learns that a run must end."""
        self._active = active
        self._lease_sec = lease_sec
        self._cancel_grace_sec = cancel_grace_sec

    def enforce(self, runs: Iterable[Run], now: float) -> None:
        """Stop or abandon runs, as of `now` by the monotonic clock."""
        for run in runs:
            context = run.context
            if context is not None and context._has_new_heartbeat:
                run.beat_at = now
            if run.ended_ms:
                continue
            silence = run.dispatch.heartbeat_timeout_sec
            if run.stop_requested is not None:
                if now - run.stop_requested_at >= self._abandon_after_sec(run):
                    self._active.abandon(run)
            elif now - run.begun_at >= run.timeout_sec:
                self._active.request_stop(run, TIMED_OUT)
            elif silence is not None and now - run.beat_at >= silence:
                self._active.request_stop(run, HEARTBEAT)

    def _abandon_after_sec(self, run: Run) -> float:
        """Seconds from the stop request until a run is abandoned. A process is killed before; its death takes time to confirm."""
        if run.mode is Mode.REMOTE:
            return self._cancel_grace_sec + self._lease_sec
        return self._cancel_grace_sec + (KILL_CONFIRM_SEC if run.mode is Mode.PROCESS else 0.0)


def warn_of_blocking(stepping: tuple[Run, float] | None, now: float) -> None:
    """Log a coroutine that blocks the handlers' loop: it delays the other handlers there.

    `stepping`: the run whose coroutine executes there, and since when.
    """
    if stepping is not None and now - stepping[1] >= BLOCKING_STEP_SEC and not stepping[0].stuck:
        run = stepping[0]
        run.stuck = True
        log.warning("handler blocks its loop", handler=run.dispatch.handler, execution=run.dispatch.execution_id)
