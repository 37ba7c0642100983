"""Throttles: keep the calls to one endpoint within its limits. Each call goes now, or is given an instant to return at.

**Rate.** The generic cell rate algorithm, with reservations. A call that finds no token reserves the next free instant and
returns then. It has paid, and takes no second token. Calls that return late would start together, so actual starts are
counted as well and limited to the same rate, with `LATE_MS` of slack. A call above that gets another instant.

**Concurrency.** Each call that goes occupies a slot until it ends, or until its lease ends if its end is never reported. A call
that finds no slot waits for about as long as the calls before it will take. A free slot goes to the next call that asks, but a
new call leaves free the slots of waiting calls that are due to return.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from noonday.model.endpoint import EndpointLimits
from noonday.model.ids import ExecutionId

LATE_MS = 1_000
"""Slack of the rate of actual starts."""
KEPT_MS = 600_000
"""Milliseconds for which a reservation is kept after its instant."""
EXPECTED_MS = 5_000
"""Milliseconds for which slots are left free for calls that should have returned."""
SOONEST_MS, LATEST_MS = 250, 30_000
"""Shortest and longest wait for a slot."""
WAIT_FACTOR = 0.8
"""Factor of the estimated wait. Returning a little early and waiting once more is better than leaving slots empty."""
UNKNOWN_LENGTH_MS = 2_000
"""Longest wait for a slot while no call has ended, and so the length of calls is unknown."""
_GOLDEN_RATIO = 0.6180339887498949
"""Multiples of the golden ratio, modulo 1, are spread evenly."""

GO = 0


@dataclass
class Throttle:
    """The throttle of one endpoint. `throttle.lua` implements the same rules."""

    spent_ms: float = 0.0
    """Instant until which tokens that were taken have spent the rate."""
    begun_ms: float = 0.0
    """Instant until which calls that went have spent the rate."""
    mean_ms: float = 0.0
    """Mean duration of calls. 0 if it is not known yet."""
    reserved: dict[str, float] = field(default_factory=dict)
    """The reserved instant of each execution that has a token and has not called. Nearly in order of time."""
    inside: dict[str, int] = field(default_factory=dict)
    """The end of the lease of each execution that occupies a slot."""
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(first request, instant of return) of each execution that waits for a slot."""
    by_request: list[tuple[int, str]] = field(default_factory=list)
    """(first request, execution) of those that wait, in order."""
    by_return: list[tuple[int, str]] = field(default_factory=list)
    """(instant of return, execution) of those that wait, in order."""

    def ask(self, execution: str, limits: EndpointLimits, lease_ms: int, now_ms: int) -> int:
        """Return GO, or how long to wait, in ms: positive for the rate, negative for a slot."""
        most, is_inside = limits.max_concurrency, self.inside.get(execution, now_ms) > now_ms
        if not is_inside:
            if most is not None and (wait := self._wait_for_slot(execution, most, now_ms)):
                return -wait
            if limits.rate_per_sec is not None and (wait := self._wait_for_token(execution, limits, now_ms)):
                return wait
        if most is not None:
            self._remove_waiting(execution)
            self.inside[execution] = now_ms + lease_ms
        return GO

    def end(self, execution: str, ran_ms: int) -> None:
        """Free the slot of a call. `ran_ms` is how long the call took, 0 if it was not made."""
        if self.inside.pop(execution, None) is not None and ran_ms > 0:
            took_ms = float(min(ran_ms, LATEST_MS))
            self.mean_ms = self.mean_ms + (took_ms - self.mean_ms) / 5 if self.mean_ms else took_ms

    def is_idle(self, now_ms: int) -> bool:
        """Return whether the throttle can be dropped without effect."""
        self._forget(now_ms)
        spent = max(self.spent_ms, self.begun_ms) > now_ms
        return not (spent or self.reserved or self.waiting or any(until > now_ms for until in self.inside.values()))

    def _wait_for_token(self, execution: str, limits: EndpointLimits, now_ms: int) -> int:
        self._forget(now_ms)
        interval = limits.interval_ms
        ahead = (limits.burst - 1) * interval
        at = self.reserved.get(execution)
        is_refused = at is not None and at <= now_ms < self.begun_ms - ahead - LATE_MS
        if at is None or at <= now_ms - KEPT_MS or is_refused:
            at = self._pay(interval, max(float(now_ms), self.begun_ms - LATE_MS)) - ahead
        if at > now_ms:
            self.reserved[execution] = at
            return ceil(at - now_ms)
        self.reserved.pop(execution, None)
        self.begun_ms = max(self.begun_ms, float(now_ms)) + interval
        return GO

    def _pay(self, interval: float, floor_ms: float) -> float:
        """Take the next token. Returns its instant."""
        token = max(self.spent_ms, floor_ms)
        self.spent_ms = token + interval
        return token

    def _wait_for_slot(self, execution: str, most: int, now_ms: int) -> int:
        self._forget(now_ms)
        if len(self.inside) >= most - len(self.by_request):
            self.inside = {name: until for name, until in self.inside.items() if until > now_ms}
        known = self.waiting.get(execution)
        returning = bisect_left(self.by_return, (now_ms + 1, "")) if known is None else 0
        if most - len(self.inside) > returning:
            return GO
        self._remove_waiting(execution)
        came_ms = now_ms if known is None else known[0]
        wait = _slot_wait_ms(bisect_left(self.by_request, (came_ms, execution)), most, self.mean_ms)
        self.waiting[execution] = came_ms, now_ms + wait
        insort(self.by_request, (came_ms, execution))
        insort(self.by_return, (now_ms + wait, execution))
        return wait

    def _remove_waiting(self, execution: str) -> None:
        if execution in self.waiting:
            came_ms, back_ms = self.waiting.pop(execution)
            del self.by_request[bisect_left(self.by_request, (came_ms, execution))]
            del self.by_return[bisect_left(self.by_return, (back_ms, execution))]

    def _forget(self, now_ms: int) -> None:
        while self.by_return and self.by_return[0][0] <= now_ms - EXPECTED_MS:
            self._remove_waiting(self.by_return[0][1])
        while self.reserved and next(iter(self.reserved.values())) <= now_ms - KEPT_MS:
            del self.reserved[next(iter(self.reserved))]


def _slot_wait_ms(before: int, most: int, mean_ms: float) -> int:
    """Return how long a call waits for a slot that has `before` calls waiting before it."""
    # If no better estimate exists, the returns are spread over time.
    spread = before * _GOLDEN_RATIO % 1.0
    if not mean_ms:
        return ceil(SOONEST_MS + (UNKNOWN_LENGTH_MS - SOONEST_MS) * spread)
    wait = WAIT_FACTOR * (before + 1) * mean_ms / most
    return ceil(max(SOONEST_MS, wait if wait <= LATEST_MS else LATEST_MS * (0.75 + 0.25 * spread)))


class CallRequest(NamedTuple):
    """A request of an execution to call an endpoint."""

    throttle: str
    """Name of the throttle: an endpoint of a tenant."""
    execution: ExecutionId
    limits: EndpointLimits
    lease_ms: int
    """Time after which the call frees its slot if its end is never reported."""


class CallEnd(NamedTuple):
    """The end of a call that was allowed."""

    throttle: str
    execution: ExecutionId
    ran_ms: int
    """Duration of the call. 0 if it was not made."""
