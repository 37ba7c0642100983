"""What a user knows about the moves of a job: each answer shows the occurrences to come that were moved, and where to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from noonday.model.job import ms_of
from tests.simulation.history import Answer

CHANGING = ("move", "replace")
"""Requests that change moves. A replacement ends those whose times the new schedule does not have."""

Pair = tuple[int, int]
"""The former time of an occurrence, and the new one."""


class _Shown(NamedTuple):
    from_ms: int
    until_ms: int
    pairs: frozenset[Pair] | None
    """The moves after the request. None: the request had no answer."""
    asked: Pair | None
    """The move that a request without an answer asked for."""

    def may_have_new(self, time: int) -> bool:
        pairs = {self.asked} - {None} if self.pairs is None else self.pairs
        return any(pair is not None and pair[1] == time for pair in pairs)


@dataclass(frozen=True)
class KnownMoves:
    """The moves of one job, as its users saw them. An answer does not show a move of which both times are decided."""

    shown: tuple[_Shown, ...] = ()

    @classmethod
    def of(cls, answers: Iterable[Answer], skew_ms: int) -> "KnownMoves":
        found = []
        for answer in answers:
            if answer.verb in CHANGING:
                moves = getattr(answer.shown, "moves", ()) if answer.is_certain else None
                pairs = None if moves is None else frozenset((ms_of(each.at), ms_of(each.to)) for each in moves)
                asked = answer.value if answer.verb == "move" and pairs is None else None
                found.append(_Shown(answer.asked_ms - skew_ms, answer.at_ms + skew_ms, pairs, asked))
        return cls(tuple(sorted(found, key=lambda each: each.from_ms)))

    def times(self) -> set[int]:
        """Return all times that occurrences were moved from or to, also by requests without an answer."""
        return {time for pair in self._pairs() for time in pair}

    def new_times(self) -> set[int]:
        return {new for _, new in self._pairs()}

    def _pairs(self) -> Iterable[Pair]:
        for each in self.shown:
            yield from each.pairs or ()
            if each.asked is not None:
                yield each.asked

    def may_have_new(self, time: int, from_ms: int, until_ms: int) -> bool:
        """Return whether an occurrence may have been moved to a time, at some instant of a span."""
        return any(each.may_have_new(time) for each in self._possible(from_ms, until_ms))

    def surely_new(self, time: int, from_ms: int, until_ms: int) -> bool:
        """Return whether an occurrence was moved to a time, and not away from it, during a whole span."""
        possible = self._possible(from_ms, until_ms)
        return bool(possible) and all(
            each.pairs is not None
            and any(new == time for _, new in each.pairs)
            and not any(former == time for former, _ in each.pairs)
            for each in possible
        )

    def surely_moved(self, time: int, from_ms: int, until_ms: int) -> bool:
        """Return whether the occurrence at a time was moved away from it during a whole span."""
        possible = self._possible(from_ms, until_ms)
        return bool(possible) and all(
            each.pairs is not None and any(former == time for former, _ in each.pairs) for each in possible
        )

    def surely_not_moved(self, time: int, from_ms: int, until_ms: int) -> bool:
        """Return whether the occurrence at a time was moved away from it at no instant of a span."""
        return all(
            each.pairs is not None and not any(former == time for former, _ in each.pairs)
            for each in self._possible(from_ms, until_ms)
        )

    def _possible(self, from_ms: int, until_ms: int) -> list[_Shown]:
        """Return the requests of which any may have been the last one that took effect, at some instant of a span."""
        concerned = [each for each in self.shown if each.from_ms <= until_ms]
        settled = [each for each in concerned if each.pairs is not None and each.until_ms < from_ms]
        last = max(settled, key=lambda each: each.from_ms, default=None)
        if last is None:
            return [_Shown(0, 0, frozenset(), None), *concerned]
        return [each for each in concerned if each is last or each.until_ms >= last.from_ms]
