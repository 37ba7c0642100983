"""Keeps calls of this worker, and of all others, within the limits of whom they call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noonday.model.errors import SignalsUnavailable
from noonday.model.execution import Failure
from noonday.model.ids import ExecutionId
from noonday.model.message import Dispatch
from noonday.model.throttle import GO
from noonday.ports.clock import Clock
from noonday.ports.throttles import Knock, Left, Throttles
from noonday.worker.run import Run

SLACK_SEC = 10.0
"""A call whose end nobody hears of holds its place for so much longer than it may take."""


@dataclass(slots=True)
class _Inside:
    dispatch: Dispatch
    """The last that came for this execution: the place is its own."""
    whom: str
    until: float
    """By the monotonic clock: then its place is no longer its own."""


class Throttle:
    """Asks for those runs that have limits, and for no others: who calls without limits costs nothing."""

    def __init__(self, throttles: Throttles, clock: Clock, timeout_of: Callable[[Run], float]) -> None:
        self._throttles = throttles
        self._clock = clock
        self._timeout_of = timeout_of
        self._inside: dict[ExecutionId, _Inside] = {}
        """Those that may go, and have not ended."""
        self._left: list[Left] = []
        """Places that have not been given back yet."""

    async def delay(self, runs: Sequence[Run]) -> dict[Run, Failure]:
        """Those that must not start now, and why; each is put off by as much. Raises SignalsUnavailable: nothing may start."""
        asking = [run for run in runs if run.dispatch.limits and not self._is_inside(run)]
        if not asking:
            return {}
        knocks = [self._knock(run) for run in asking]
        waits = await self._throttles.ask(knocks, self._clock.now_ms())
        delayed = {}
        for run, knock, wait_ms in zip(asking, knocks, waits, strict=True):
            if wait_ms == GO:
                until = self._clock.monotonic() + knock.lease_ms / 1000
                self._inside[knock.execution] = _Inside(run.dispatch, knock.whom, until)
            else:
                delayed[run] = failure_of_throttled(run.dispatch, wait_ms)
                run.put_off(abs(wait_ms) / 1000, delayed[run])
        return delayed

    def note(self, run: Run) -> None:
        """A run is over, whether it was made or not."""
        inside = self._inside.get(run.dispatch.execution_id)
        if inside is None or inside.dispatch is not run.dispatch:
            return
        del self._inside[run.dispatch.execution_id]
        if run.dispatch.limits and run.dispatch.limits.max_concurrency is not None:
            ran_ms = max(1, run.ended_ms - run.started_ms) if run.started_ms else 0
            self._left.append(Left(inside.whom, run.dispatch.execution_id, ran_ms))

    async def tell(self) -> None:
        """Give back the places of those that have ended, so that others need not wait for their leases."""
        self._forget()
        if not self._left:
            return
        left, self._left = self._left, []
        try:
            await self._throttles.leave(left)
        except SignalsUnavailable:
            self._left = left + self._left

    def _is_inside(self, run: Run) -> bool:
        """Whether it has a place and has paid, perhaps under another delivery that could not start."""
        inside = self._inside.get(run.dispatch.execution_id)
        if inside is None or inside.until < self._clock.monotonic():
            return False
        inside.dispatch = run.dispatch
        return True

    def _forget(self) -> None:
        """Those that were parked after they were let in, and that somebody else has run."""
        now = self._clock.monotonic()
        while self._inside and (first := next(iter(self._inside.items())))[1].until < now:
            del self._inside[first[0]]

    def _knock(self, run: Run) -> Knock:
        dispatch = run.dispatch
        assert dispatch.limits is not None
        lease_ms = round((self._timeout_of(run) + SLACK_SEC) * 1000)
        return Knock(f"{dispatch.tenant}/{dispatch.endpoint}", dispatch.execution_id, dispatch.limits, lease_ms)


def failure_of_throttled(dispatch: Dispatch, wait_ms: int) -> Failure:
    """What is shown of a run that waits for the limits of whom it calls; `wait_ms` as throttles have it."""
    limits = dispatch.limits
    assert limits is not None
    if wait_ms > 0:
        what, kind = f"{limits.rate_per_sec:g} a second", "EndpointRate"
    else:
        what, kind = f"{limits.max_concurrency} at once", "EndpointBusy"
    wait = f"{abs(wait_ms) / 1000:.1f}".removesuffix(".0")
    return Failure(kind, f"calls to {dispatch.endpoint} are limited to {what}: this one waits for {wait} s")
