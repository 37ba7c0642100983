"""Rate and lateness of the last seconds, small enough to be stored with a recorder's checkpoint, and additive."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2

import msgspec

WINDOW_SEC = 5
_STEPS = 16
"""Number of lateness classes per factor of two. A percentile is accurate to about 4 %."""


class Figures(msgspec.Struct, frozen=True, rename="camel"):
    """The number of runs that ended in the last window, and how many started how late, by class."""

    at_ms: int
    ended: int
    late: dict[int, int] = {}


class Recent:
    """The runs that one recorder has read in the last seconds.

    A value: `with_ended` returns another one, which the recorder keeps if the batch is committed.
    """

    def __init__(self, seconds: dict[int, tuple[int, Counter[int]]] | None = None) -> None:
        self._seconds = seconds or {}

    def with_ended(self, latenesses: Iterable[int | None], now_ms: int) -> "Recent":
        """Return a copy with runs that ended. `latenesses` has how many ms late each started, or None if it did not start."""
        second, oldest = now_ms // 1000, _oldest(now_ms)
        ended, former = self._seconds.get(second, (0, Counter()))
        late = former.copy()
        for each in latenesses:
            ended += 1
            if each is not None:
                late[_class_of(each)] += 1
        fresh = {at: each for at, each in self._seconds.items() if at >= oldest}
        return Recent(fresh | {second: (ended, late)})

    def figures(self, now_ms: int) -> Figures:
        oldest = _oldest(now_ms)
        lately = [each for second, each in self._seconds.items() if second >= oldest]
        late: Counter[int] = Counter()
        for _, each in lately:
            late.update(each)
        return Figures(now_ms, sum(ended for ended, _ in lately), dict(late))


def overview_of(all_figures: Sequence[Figures], now_ms: int) -> dict[str, object]:
    """Return the rate and the lateness percentiles of all recorders together."""
    late: Counter[int] = Counter()
    for figures in _fresh(all_figures, now_ms):
        late.update(figures.late)
    return {
        "ratePerSec": round(rate_per_sec(all_figures, now_ms), 1),
        "latenessMs": {f"p{percent}": _percentile(late, percent) for percent in (50, 95, 99)},
    }


def rate_per_sec(all_figures: Sequence[Figures], now_ms: int) -> float:
    """Return how many runs ended per second."""
    return sum(figures.ended for figures in _fresh(all_figures, now_ms)) / WINDOW_SEC


def _fresh(all_figures: Sequence[Figures], now_ms: int) -> list[Figures]:
    """Return the figures that are not older than a window."""
    return [figures for figures in all_figures if figures.at_ms > now_ms - WINDOW_SEC * 1000]


def _oldest(now_ms: int) -> int:
    """Return the first second of the window."""
    return now_ms // 1000 - WINDOW_SEC + 1


def _percentile(late: Counter[int], percent: int) -> int | None:
    total, seen = late.total(), 0
    for each in sorted(late):
        seen += late[each]
        if seen * 100 > total * percent or seen == total:
            return round(2 ** (each / _STEPS)) - 1
    return None


def _class_of(late_ms: int) -> int:
    return round(log2(1 + max(0, late_ms)) * _STEPS)
