"""The pre-start check: the worker's last check before a handler is entered."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Outcome
from noonday.model.ids import ExecutionId
from noonday.ports.clock import Clock
from noonday.ports.signals import Signals
from noonday.runtime.metrics import Metrics
from noonday.worker.capacity import Capacity
from noonday.worker.claims import Claims
from noonday.worker.connectivity import Connectivity
from noonday.worker.ended import EndedRuns
from noonday.worker.retry_breaker import RetryBreaker, failure_of_delayed
from noonday.worker.run import INTERRUPTED, Run
from noonday.worker.sharing import failure_of_deferred
from noonday.worker.throttling import EndpointThrottle


@dataclass(eq=False)
class PreStartCheck:
    """Checks runs that are due and have a slot: claims, shares, breakers, limits of endpoints, revocations and fences."""

    _signals: Signals
    _connectivity: Connectivity
    _claims: Claims
    _capacity: Capacity
    _ended: EndedRuns
    _retry_breaker: RetryBreaker
    _throttle: EndpointThrottle
    _clock: Clock
    _metrics: Metrics
    _checking: set[Run] = field(default_factory=set)
    """Runs that are being checked."""

    async def check(
        self, pool: str, runs: list[Run], deferred: Mapping[Run, float]
    ) -> tuple[list[Run], Mapping[ExecutionId, str] | None]:
        """Check runs of a pool. Returns those that were neither dropped, deferred nor returned meanwhile.

        Also returns why executions must not start, by execution. None: nothing may start now. `deferred`: runs that wait for the
        share of their tenant, with the seconds that each waits.
        """
        self._checking = set(runs)
        reasons = await self._reasons_not_to_start(pool, runs, deferred)
        left = [run for run in runs if run in self._checking]
        self._checking = set()
        return left, reasons

    def take_all(self) -> list[Run]:
        """Remove and return the runs that are being checked: they do not start."""
        runs, self._checking = self._checking, set()
        return list(runs)

    def passes(self, run: Run, reasons: Mapping[ExecutionId, str], now_ms: int) -> bool:
        """Return whether a checked run may start. If not, it is ended."""
        dispatch = run.dispatch
        if run.is_too_old(now_ms):
            self._metrics.refused.labels("dispatch").inc()
            self._ended.reject(run, INTERRUPTED)
            return False
        reason = reasons.get(dispatch.execution_id) if reasons else None
        if reason is not None:
            self._ended.reject(run, reason)
            return False
        deadline = dispatch.start_deadline_sec
        if deadline is not None and dispatch.attempt == 1 and now_ms > dispatch.due_ms + deadline * 1000:
            self._ended.end_unstarted(run, Outcome.EXPIRED)
            return False
        if run.handler is None:
            self._ended.end_unstarted(run, Outcome.HANDED_BACK)
            return False
        return True

    async def _reasons_not_to_start(
        self, pool: str, runs: list[Run], deferred: Mapping[Run, float]
    ) -> Mapping[ExecutionId, str] | None:
        """Claim runs, defer those that a share, a breaker or a limit delays, and ask the signals about the others."""
        try:
            runs = await self._with_fresh_claims(runs)
            runs = self._without_deferred(runs, deferred)
            runs = await self._without_open_breakers(runs)
            runs = await self._without_throttled(runs)
            checked_ms = self._clock.now_ms()
            for run in runs:
                run.checked_ms = checked_ms
            return await self._signals.pre_start_check(pool, [run.dispatch for run in runs]) if runs else {}
        except SignalsUnavailable:
            self._connectivity.note_signals_unavailable()
            return None

    async def _with_fresh_claims(self, runs: list[Run]) -> list[Run]:
        """Claim unclaimed runs, and renew claims that may have lapsed while their runs waited for a slot."""
        stale = self._claims.stale(runs)
        if not stale:
            return runs
        claimed = set(await self._claims.claim(stale))
        gone = {run for run in stale if run not in claimed and run in self._checking}
        self._capacity.release(gone)
        self._checking -= gone
        return [run for run in runs if run in self._checking]

    def _without_deferred(self, runs: list[Run], waits_sec: Mapping[Run, float]) -> list[Run]:
        """Defer runs whose tenant's share is taken by slow calls: they wait on the timeline. Returns the others."""
        for run in runs:
            if run in waits_sec:
                run.defer(waits_sec[run], failure_of_deferred(waits_sec[run]))
                self._end_deferred(run)
        return [run for run in runs if run not in waits_sec] if waits_sec else runs

    async def _without_open_breakers(self, runs: list[Run]) -> list[Run]:
        """Defer runs whose breaker is open: they wait on the timeline. Returns the others."""
        delayed = await self._retry_breaker.delay(runs)
        for run, wait_sec in delayed.items():
            run.defer(wait_sec, failure_of_delayed(run.dispatch, wait_sec))
            self._end_deferred(run)
        return [run for run in runs if run not in delayed] if delayed else runs

    async def _without_throttled(self, runs: list[Run]) -> list[Run]:
        """Defer runs that the limits of their endpoint delay: they wait on the timeline. Returns the others."""
        delayed = await self._throttle.delay(runs)
        for run in delayed:
            self._end_deferred(run)
        return [run for run in runs if run not in delayed] if delayed else runs

    def _end_deferred(self, run: Run) -> None:
        """End a run that was deferred in its check, unless it was returned meanwhile."""
        if run in self._checking:
            self._checking.discard(run)
            self._ended.end_unstarted(run, run.outcome)
