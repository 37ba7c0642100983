"""How calls to one endpoint are kept within its limits: who may go now, and when the others may come again.

**Rate.** The generic cell rate algorithm, with reservations. Whoever finds no token is given the next free instant, and comes
back then: it has paid, and pays no second time. Those who come late would come together, so what really starts is counted
as well, and held to the same rate with `LATE_MS` of slack; whoever is over that is given another instant.

**Concurrency.** Each call that goes holds a place until it ends, or until its lease does, if nobody hears of its end. Whoever
finds none waits for about as long as those before it will take. A place that is free goes to whoever is there, but a newcomer
leaves those to whom it was promised their places.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import ceil

from noonday.model.endpoint import EndpointLimits

LATE_MS = 1_000
KEPT_MS = 600_000
"""How long after its instant a reservation is remembered."""
EXPECTED_MS = 5_000
"""For how long places are left to those who should be back."""
SOONEST_MS, LATEST_MS = 250, 30_000
HASTE = 0.8
"""Better to be there a little early, and wait once more, than to leave places empty."""
GUESSING_MS = 2_000
"""Within so long those come back who came when no call had ended yet, and nobody knew how long they take."""
_GOLDEN = 0.6180339887498949

GO = 0


@dataclass
class Throttle:
    """Of one endpoint. `throttle.lua` does the same."""

    spent_ms: float = 0.0
    """Until when the rate is spent, by tokens that were paid."""
    begun_ms: float = 0.0
    """Until when it is spent, by calls that went."""
    mean_ms: float = 0.0
    """How long calls take; 0 if that is not known yet."""
    reserved: dict[str, float] = field(default_factory=dict)
    """The instant of each that has paid and not gone; the earliest come first, or nearly so."""
    inside: dict[str, int] = field(default_factory=dict)
    """Until when each that went holds its place."""
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict)
    """When each that found no place first came, and when it is to be back."""
    line: list[tuple[int, str]] = field(default_factory=list)
    """Those who wait, in the order they came."""
    coming: list[tuple[int, str]] = field(default_factory=list)
    """Those who wait, in the order they are to be back."""

    def ask(self, execution: str, limits: EndpointLimits, lease_ms: int, now_ms: int) -> int:
        """GO; or how long to wait, in ms: positive for the rate, negative for a place."""
        most, is_inside = limits.max_concurrency, self.inside.get(execution, now_ms) > now_ms
        if not is_inside:
            if most is not None and (wait := self._wait_for_place(execution, most, now_ms)):
                return -wait
            if limits.rate_per_sec is not None and (wait := self._wait_for_token(execution, limits, now_ms)):
                return wait
        if most is not None:
            self._leave_line(execution)
            self.inside[execution] = now_ms + lease_ms
        return GO

    def end(self, execution: str, ran_ms: int) -> None:
        """A call has ended. `ran_ms`: how long it took; 0 if it was not made."""
        if self.inside.pop(execution, None) is not None and ran_ms > 0:
            took_ms = float(min(ran_ms, LATEST_MS))
            self.mean_ms = self.mean_ms + (took_ms - self.mean_ms) / 5 if self.mean_ms else took_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is lost if it is forgotten."""
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
        """Take the next token."""
        token = max(self.spent_ms, floor_ms)
        self.spent_ms = token + interval
        return token

    def _wait_for_place(self, execution: str, most: int, now_ms: int) -> int:
        self._forget(now_ms)
        if len(self.inside) >= most - len(self.line):
            self.inside = {name: until for name, until in self.inside.items() if until > now_ms}
        mine = self.waiting.get(execution)
        promised = bisect_left(self.coming, (now_ms + 1, "")) if mine is None else 0
        if most - len(self.inside) > promised:
            return GO
        self._leave_line(execution)
        came_ms = now_ms if mine is None else mine[0]
        wait = _turn_of(bisect_left(self.line, (came_ms, execution)), most, self.mean_ms)
        self.waiting[execution] = came_ms, now_ms + wait
        insort(self.line, (came_ms, execution))
        insort(self.coming, (now_ms + wait, execution))
        return wait

    def _leave_line(self, execution: str) -> None:
        if execution in self.waiting:
            came_ms, back_ms = self.waiting.pop(execution)
            del self.line[bisect_left(self.line, (came_ms, execution))]
            del self.coming[bisect_left(self.coming, (back_ms, execution))]

    def _forget(self, now_ms: int) -> None:
        while self.coming and self.coming[0][0] <= now_ms - EXPECTED_MS:
            self._leave_line(self.coming[0][1])
        while self.reserved and next(iter(self.reserved.values())) <= now_ms - KEPT_MS:
            del self.reserved[next(iter(self.reserved))]


def _turn_of(before: int, most: int, mean_ms: float) -> int:
    # Those of whom no more is known than that they come back come one after the other.
    spread = before * _GOLDEN % 1.0
    if not mean_ms:
        return ceil(SOONEST_MS + (GUESSING_MS - SOONEST_MS) * spread)
    wait = HASTE * (before + 1) * mean_ms / most
    return ceil(max(SOONEST_MS, wait if wait <= LATEST_MS else LATEST_MS * (0.75 + 0.25 * spread)))
