"""What a user knows about the skips of a job: each answer shows the occurrences to come that are skipped."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from noonday.model.job import ms_of
from tests.simulation.history import Answer

CHANGING = ("skip", "unskip", "replace")
"""Requests that change skips. A replacement ends those that the new schedule does not have."""


class _Shown(NamedTuple):
    from_ms: int
    until_ms: int
    times: frozenset[int] | None
    """The skipped occurrences after the request. None: the request had no answer."""


@dataclass(frozen=True)
class KnownSkips:
    """The skips of one job, as its users saw them."""

    shown: tuple[_Shown, ...] = ()

    @classmethod
    def of(cls, answers: Iterable[Answer], skew_ms: int) -> "KnownSkips":
        found = []
        for answer in answers:
            if answer.verb in CHANGING:
                skips = getattr(answer.shown, "skips", ()) if answer.is_certain else None
                times = None if skips is None else frozenset(ms_of(each.at) for each in skips)
                found.append(_Shown(answer.asked_ms - skew_ms, answer.at_ms + skew_ms, times))
        return cls(tuple(sorted(found, key=lambda each: each.from_ms)))

    def surely(self, time: int, from_ms: int, until_ms: int) -> bool:
        """Return whether an occurrence was skipped during a whole span."""
        return self._always(time, from_ms, until_ms, is_skipped=True)

    def surely_not(self, time: int, from_ms: int, until_ms: int) -> bool:
        """Return whether an occurrence was skipped at no instant of a span."""
        return self._always(time, from_ms, until_ms, is_skipped=False)

    def _always(self, time: int, from_ms: int, until_ms: int, *, is_skipped: bool) -> bool:
        concerned = [each for each in self.shown if each.from_ms <= until_ms]
        # Requests after the last one that certainly took effect before the span, of which any may have been the last.
        settled = [each for each in concerned if each.times is not None and each.until_ms < from_ms]
        last = max(settled, key=lambda each: each.from_ms, default=None)
        possible = [each for each in concerned if last is None or each is last or each.until_ms >= last.from_ms]
        if last is None and is_skipped:
            return False
        return all(each.times is not None and (time in each.times) == is_skipped for each in possible)
