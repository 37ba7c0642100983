"""Keeps calls to an endpoint within its rate and concurrency limits, over all workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Failure
from noonday.model.ids import ExecutionId
from noonday.model.message import Dispatch
from noonday.model.throttle import GO, CallEnd, CallRequest
from noonday.ports.clock import Clock
from noonday.ports.throttles import Throttles
from noonday.worker.run import Run

LEASE_SLACK_SEC = 10.0
"""Seconds beyond its timeout for which a call keeps its slot at the endpoint if its end is never reported."""


@dataclass(slots=True)
class _Admission:
    """The permission of an execution to call its endpoint."""

    dispatch: Dispatch
    """The latest dispatch of the execution, which owns the permission."""
    throttle: str
    until: float
    """Time when the permission lapses, by the monotonic clock."""


class EndpointThrottle:
    """Asks the shared throttles whether runs may call their endpoints. Runs without limits cost nothing."""

    def __init__(self, throttles: Throttles, clock: Clock, timeout_of: Callable[[Run], float]) -> None:
        self._throttles = throttles
        self._clock = clock
        self._timeout_of = timeout_of
        self._admitted: dict[ExecutionId, _Admission] = {}
        """Permissions of runs that have not ended, by execution."""
        self._released: list[CallEnd] = []
        """Ended calls whose slots are not freed yet."""

    async def delay(self, runs: Sequence[Run]) -> dict[Run, Failure]:
        """Defer the runs that must not start now. Returns them with the failure to show for each.

        Raises SignalsUnavailable: no run with limits may start.
        """
        limited = [run for run in runs if run.dispatch.limits and not self._is_admitted(run)]
        if not limited:
            return {}
        requests = [self._request_for(run) for run in limited]
        waits = await self._throttles.ask(requests, self._clock.now_ms())
        delayed = {}
        for run, request, wait_ms in zip(limited, requests, waits, strict=True):
            if wait_ms == GO:
                until = self._clock.monotonic() + request.lease_ms / 1000
                self._admitted[request.execution] = _Admission(run.dispatch, request.throttle, until)
            else:
                delayed[run] = failure_of_throttled(run.dispatch, wait_ms)
                run.defer(abs(wait_ms) / 1000, delayed[run])
        return delayed

    def note(self, run: Run) -> None:
        """Note that a run has ended, whether it made its call or not."""
        admission = self._admitted.get(run.dispatch.execution_id)
        if admission is None or admission.dispatch is not run.dispatch:
            return
        del self._admitted[run.dispatch.execution_id]
        if run.dispatch.limits and run.dispatch.limits.max_concurrency is not None:
            ran_ms = max(1, run.ended_ms - run.started_ms) if run.started_ms else 0
            self._released.append(CallEnd(admission.throttle, run.dispatch.execution_id, ran_ms))

    async def release(self) -> None:
        """Free the slots of ended calls, so that other calls need not wait until those slots lapse."""
        self._drop_expired()
        if not self._released:
            return
        released, self._released = self._released, []
        try:
            await self._throttles.end(released)
        except SignalsUnavailable:
            self._released = released + self._released

    def _is_admitted(self, run: Run) -> bool:
        """Return whether the execution has permission already, perhaps from another delivery that could not start."""
        admission = self._admitted.get(run.dispatch.execution_id)
        if admission is None or admission.until < self._clock.monotonic():
            return False
        admission.dispatch = run.dispatch
        return True

    def _drop_expired(self) -> None:
        """Forget lapsed permissions, of runs that were parked after they got permission and that ran in another worker."""
        now = self._clock.monotonic()
        while self._admitted and (first := next(iter(self._admitted.items())))[1].until < now:
            del self._admitted[first[0]]

    def _request_for(self, run: Run) -> CallRequest:
        dispatch = run.dispatch
        assert dispatch.limits is not None
        lease_ms = round((self._timeout_of(run) + LEASE_SLACK_SEC) * 1000)
        return CallRequest(f"{dispatch.tenant}/{dispatch.endpoint}", dispatch.execution_id, dispatch.limits, lease_ms)


def failure_of_throttled(dispatch: Dispatch, wait_ms: int) -> Failure:
    """Return the failure to show for a run that waits for its endpoint's limits. `wait_ms`: the answer of `Throttles.ask`."""
    limits = dispatch.limits
    assert limits is not None
    if wait_ms > 0:
        limit, kind = f"{limits.rate_per_sec:g} a second", "EndpointRate"
    else:
        limit, kind = f"{limits.max_concurrency} at once", "EndpointBusy"
    wait = f"{abs(wait_ms) / 1000:.1f}".removesuffix(".0")
    return Failure(kind, f"calls to {dispatch.endpoint} are limited to {limit}: this one waits for {wait} s")
