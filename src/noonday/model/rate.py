"""A rate with a burst: the generic cell rate algorithm, many cells at a time."""

from dataclasses import dataclass
from math import floor

MIN_RATE, MAX_RATE = 0.001, 1e9
"""A second."""
_NEARLY = 1e-6
"""What is a whole cell but for the rounding of floats is one."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second, and as many at once as `burst` says when nothing was taken for a while."""

    per_sec: float
    burst: int

    @property
    def interval_ms(self) -> float:
        return 1000 / self.per_sec


@dataclass(frozen=True, slots=True)
class Granted:
    count: int
    more_ms: int
    """When there is one more."""


def take(rate: Rate, spent_until_ms: float, count: int, now_ms: int) -> tuple[Granted, float]:
    """Take up to `count`, or give back if it is negative. Answers what was granted, and until when that spends the rate."""
    interval = rate.interval_ms
    # More than a burst ahead of now is a clock that was set back, or a rate that was raised.
    spent = min(max(spent_until_ms, float(now_ms)), now_ms + rate.burst * interval)
    most = max(0, floor(rate.burst - (spent - now_ms) / interval + _NEARLY))
    granted = min(count, most)
    spent = max(float(now_ms), spent + granted * interval)
    more_ms = now_ms if granted < most else floor(spent - (rate.burst - 1) * interval) + 1
    return Granted(granted, max(now_ms, more_ms)), spent
