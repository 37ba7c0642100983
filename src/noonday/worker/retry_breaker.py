"""Delays calls to endpoints that are down, and retries of handlers that fail for all jobs."""

from collections.abc import Sequence

import structlog

from noonday.model.breaker import CLOSED, MIN_CALLS, MIN_RUNS, PROBE, CallCounts
from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Failure, Outcome
from noonday.model.ids import stable_fraction
from noonday.model.message import Dispatch
from noonday.ports.breakers import Breakers
from noonday.ports.clock import Clock
from noonday.worker.run import Run

log = structlog.get_logger("noonday.worker")
SYNC_SEC = 1.0
"""Seconds between two exchanges of counts with the other workers."""
PROBE_SEC = 2.0
"""Seconds that other runs wait for the outcome of a probe before they ask again."""
SPREAD_SEC = 5.0
"""Runs that wait for the same breaker are spread over this many seconds."""
_COUNTED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT})


class RetryBreaker:
    """This worker's view of the breakers that all workers share.

    Each tenant has a breaker for each endpoint, which delays all calls to it, and one for each handler, which delays its retries.
    """

    def __init__(self, breakers: Breakers, clock: Clock, min_runs_per_minute: int = MIN_RUNS) -> None:
        """`min_runs_per_minute`: minimum runs of a handler before its breaker may open. 0 disables the breakers of handlers."""
        self._breakers = breakers
        self._clock = clock
        self._min_runs_per_minute = min_runs_per_minute
        self._counts: dict[str, list[int]] = {}
        """[calls, failures] since the last sync, by breaker."""
        self._open: dict[str, float] = {}
        """End of each open breaker, by the monotonic clock. If it is past, the next run asks whether to probe."""
        self._probing: dict[str, Dispatch] = {}
        """The dispatch that probes an endpoint, by breaker."""
        self._probe_failures: dict[str, bool] = {}
        """Results of probes since the last sync, by breaker: True if the probe failed."""
        self._synced_at = 0.0

    @property
    def open(self) -> int:
        """Number of open breakers that this worker knows of."""
        return len(self._open)

    async def delay(self, runs: Sequence[Run]) -> dict[Run, float]:
        """Return the runs that must not start now, with the seconds that each waits."""
        if not self._open:
            return {}
        waits = {run: await self._wait_of(run) for run in runs if run.dispatch.endpoint or run.dispatch.attempt > 1}
        return {run: wait + _spread(run.dispatch) for run, wait in waits.items() if wait > 0}

    async def _wait_of(self, run: Run) -> float:
        name = name_of(run.dispatch)
        until = self._open.get(name)
        if until is None:
            return 0.0
        wait = until - self._clock.monotonic()
        if wait > 0:
            return wait
        return await self._ask_to_probe(name, run) if run.dispatch.endpoint else self._resume_retries(name)

    def _resume_retries(self, name: str) -> float:
        """Close the breaker of a handler: after the pause all its retries start, and are counted anew.

        There is no probe, because a handler does something else for each job: one failure says little about the others.
        """
        del self._open[name]
        self._probe_failures[name] = False
        return 0.0

    async def _ask_to_probe(self, name: str, run: Run) -> float:
        try:
            answer = await self._breakers.ask(name, self._clock.now_ms())
        except SignalsUnavailable:
            return SYNC_SEC
        if answer == CLOSED:
            del self._open[name]
            return 0.0
        if answer == PROBE:
            self._probing[name] = run.dispatch
            self._open[name] = self._clock.monotonic() + PROBE_SEC
            return 0.0
        self._open[name] = self._clock.monotonic() + answer / 1000
        return answer / 1000

    def note(self, run: Run) -> None:
        """Count the outcome of a run that has ended."""
        name = name_of(run.dispatch)
        if run.dispatch.endpoint is None and not self._min_runs_per_minute:
            return
        is_probe = self._probing.get(name) is run.dispatch
        if is_probe:
            del self._probing[name]
        if not run.started_ms or run.outcome not in _COUNTED:
            return  # the outcome says nothing about the endpoint or handler
        failed = run.outcome is not Outcome.SUCCEEDED and run.counts
        if is_probe:
            self._probe_failures[name] = failed
            return
        count = self._counts.setdefault(name, [0, 0])
        count[0] += 1
        count[1] += failed

    async def sync(self) -> None:
        """Send the counts of this worker to the shared breakers, and learn their states. Does nothing if no sync is due."""
        now = self._clock.monotonic()
        if not self._probe_failures and (not self._counts or now - self._synced_at < SYNC_SEC):
            return
        self._synced_at = now
        counts, self._counts = self._counts, {}
        probe_failures, self._probe_failures = self._probe_failures, {}
        tallies = {
            name: self._tally(name, counts.get(name, [0, 0]), probe_failures.get(name))
            for name in {*counts, *probe_failures}
        }
        try:
            states = await self._breakers.add_counts(tallies, self._clock.now_ms())
        except SignalsUnavailable:
            # The counts may have arrived. Counting them twice within a minute does no harm.
            self._counts, self._probe_failures = {**counts, **self._counts}, {**probe_failures, **self._probe_failures}
            return
        for name, state in states.items():
            self._learn(name, state)

    def _tally(self, name: str, count: list[int], probe_failed: bool | None) -> CallCounts:
        least = MIN_CALLS if name.startswith("e/") else self._min_runs_per_minute
        return CallCounts(count[0], count[1], probe_failed, least)

    def _learn(self, name: str, state: int) -> None:
        if state == CLOSED:
            if self._open.pop(name, None) is not None:
                log.info("breaker closed", breaker=name)
        else:
            if name not in self._open:
                log.warning("breaker opened", breaker=name, why="more than half failed in the last minute")
            self._open[name] = self._clock.monotonic() + max(0, state) / 1000


def name_of(dispatch: Dispatch) -> str:
    """Return the name of the breaker of a dispatch.

    Each tenant has its own breakers: its failures do not delay the runs of other tenants.
    The length keeps tenant "a/b" in pool "c" and tenant "a" in pool "b/c" apart.
    """
    tenant = dispatch.tenant
    if dispatch.endpoint is not None:
        return f"e/{len(tenant)}/{tenant}/{dispatch.endpoint}"
    return f"h/{len(tenant)}/{tenant}/{dispatch.pool}/{dispatch.handler}"


def failure_of_delayed(dispatch: Dispatch, wait_sec: float) -> Failure:
    """Return the failure to show for a run that waits for a breaker."""
    target = dispatch.endpoint or f"handler {dispatch.handler} in pool {dispatch.pool}"
    counted = "calls to" if dispatch.endpoint else "runs of"
    waiting = "calls" if dispatch.endpoint else "retries"
    message = f"more than half of the {counted} {target} failed within a minute: {waiting} wait, this one for {wait_sec:.0f} s"
    return Failure("BreakerOpen", message)


def _spread(dispatch: Dispatch) -> float:
    return SPREAD_SEC * stable_fraction(f"{dispatch.execution_id}/{dispatch.number}")
