"""Schedule rules: when a job is due, and what happens when its time zone changes its offset.

A cron job with fixed times of day (`30 2 * * *`) runs on each of its days. A time that the clocks skip fires once, later by
the width of the gap. A time that the clocks show twice fires once, the first time. A job may choose otherwise with `gap` and
`repeat`. A cron job with a `*` among second, minute and hour follows real time: it fires at every instant whose wall time
matches. It never fires in a gap, and it fires in both passes of a repeated hour.

`offset_changes` matches a cron expression against the wall times of a zone.
"""

from collections.abc import Callable
from enum import StrEnum
from itertools import islice, pairwise
from typing import NamedTuple

import msgspec

from noonday.model.cron import HORIZON_YEARS, Cron
from noonday.model.cron_parsing import parse
from noonday.model.errors import InvalidInput
from noonday.model.offset_changes import (
    BLOCK_BITS,
    Block,
    Gap,
    Repeat,
    blocks_backwards,
    blocks_forwards,
    fixed_block,
    real_block,
    real_stretches,
)
from noonday.model.zones import local_text

_HORIZON_S = HORIZON_YEARS * 366 * 86_400
_MAX_BLOCKS_SEARCHED = 12
"""Number of blocks with a matching wall time that are searched for one that exists."""


class DstMark(StrEnum):
    """The effect of an offset change on an occurrence."""

    GAP_SHIFTED = "GAP_SHIFTED"
    """Its wall time does not exist on that day."""
    REPEATED_FIRST = "REPEATED_FIRST"
    REPEATED_SECOND = "REPEATED_SECOND"


class Occurrence(msgspec.Struct, frozen=True, rename="camel"):
    """One occurrence of a rule, for people to read."""

    at_ms: int
    utc: str
    local: str
    dst: DstMark | None = None


class UpcomingTimes(NamedTuple):
    """Occurrences that follow an instant."""

    times: list[int]
    is_least: bool
    """True if occurrences may be missing at the end: the computation was stopped early."""


class _Timeline(msgspec.Struct, frozen=True):
    """The occurrences of a rule. All instants are UTC milliseconds since the Unix epoch."""

    def next_after(self, after_ms: int) -> int | None:
        """Return the earliest occurrence after `after_ms`.

        None if there is none, or none within 50 years, or if offset changes skip all its times twelve years in a row.
        """
        raise NotImplementedError

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        """Return the latest occurrence in `after_ms < t <= until_ms`."""
        raise NotImplementedError

    def count(self, after_ms: int, until_ms: int) -> int:
        """Return the number of occurrences in `after_ms < t <= until_ms`, without visiting each."""
        raise NotImplementedError

    def take(self, after_ms: int, n: int, until_ms: int | None = None) -> list[int]:
        """Return the `n` occurrences that follow `after_ms`, or as many as there are up to `until_ms`."""
        return self.take_while(after_ms, n, until_ms, lambda: True).times

    def take_while(
        self, after_ms: int, n: int, until_ms: int | None, may_continue: Callable[[], bool]
    ) -> UpcomingTimes:
        """Return occurrences like `take`, as long as `may_continue` returns True: it is called before each occurrence."""
        taken: list[int] = []
        while len(taken) < n:
            if not may_continue():
                return UpcomingTimes(taken, is_least=True)
            found = self.next_after(after_ms)
            if found is None or (until_ms is not None and found > until_ms):
                break
            taken.append(found)
            after_ms = found
        return UpcomingTimes(taken, is_least=False)


class CronRule(_Timeline, frozen=True):
    """Wall-clock times of a zone, from `start_ms` to `end_ms`, both included.

    Construction is cheap and validates nothing: a bad expression or zone raises `InvalidInput` at the first method call.
    """

    expression: str
    timezone: str = "UTC"
    gap: Gap = Gap.SHIFT
    repeat: Repeat = Repeat.FIRST
    start_ms: int | None = None
    end_ms: int | None = None

    def next_after(self, after_ms: int) -> int | None:
        cron = parse(self.expression)
        from_s = _clip_start(after_ms, self.start_ms) // 1000 + 1
        before_s = _clip_end((from_s + _HORIZON_S) * 1000, self.end_ms) // 1000 + 1
        for index in islice(blocks_forwards(cron, from_s, before_s), _MAX_BLOCKS_SEARCHED):
            found = self._block(cron, index).first(cron, from_s)
            if found is not None:
                return found * 1000 if found < before_s else None
        return None

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        cron = parse(self.expression)
        after_s = _clip_start(after_ms, self.start_ms) // 1000
        until_s = _clip_end(until_ms, self.end_ms) // 1000
        for index in islice(blocks_backwards(cron, after_s + 1, until_s + 1), _MAX_BLOCKS_SEARCHED):
            found = self._block(cron, index).last(cron, until_s)
            if found is not None:
                return found * 1000 if found > after_s else None
        return None

    def count(self, after_ms: int, until_ms: int) -> int:
        cron = parse(self.expression)
        from_s = _clip_start(after_ms, self.start_ms) // 1000 + 1
        before_s = _clip_end(until_ms, self.end_ms) // 1000 + 1
        return sum(
            self._block(cron, index).count(cron, from_s, before_s) for index in blocks_forwards(cron, from_s, before_s)
        )

    def mark(self, at_ms: int) -> DstMark | None:
        """Return the effect of an offset change on the occurrence at `at_ms`, if there is one."""
        cron, at_s = parse(self.expression), at_ms // 1000
        if self._block(cron, at_s >> BLOCK_BITS).is_from_gap(cron, at_s):
            return DstMark.GAP_SHIFTED
        for earlier, later in pairwise(real_stretches(self.timezone, at_s >> BLOCK_BITS)):
            repeated_s = earlier.offset_s - later.offset_s
            if later.start_s - repeated_s <= at_s < later.start_s:
                return DstMark.REPEATED_FIRST
            if later.start_s <= at_s < later.start_s + repeated_s:
                return DstMark.REPEATED_SECOND
        return None

    def _block(self, cron: Cron, index: int) -> Block:
        if cron.is_fixed:
            return fixed_block(self.timezone, index, self.gap, self.repeat)
        return real_block(self.timezone, index)


class IntervalRule(_Timeline, frozen=True):
    """Every `every_ms`, counted from the Unix epoch plus `phase_ms`, from `start_ms` to `end_ms`, both included."""

    every_ms: int
    phase_ms: int = 0
    start_ms: int | None = None
    end_ms: int | None = None

    def __post_init__(self) -> None:
        if self.every_ms < 1:
            raise InvalidInput.of("/everySec", "must be at least 0.001", self.every_ms / 1000)

    def next_after(self, after_ms: int) -> int | None:
        found = self._until(_clip_start(after_ms, self.start_ms)) + self.every_ms
        return found if self.end_ms is None or found <= self.end_ms else None

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        found = self._until(_clip_end(until_ms, self.end_ms))
        return found if found > _clip_start(after_ms, self.start_ms) else None

    def count(self, after_ms: int, until_ms: int) -> int:
        after, until = _clip_start(after_ms, self.start_ms), _clip_end(until_ms, self.end_ms)
        return max(0, self._until(until) - self._until(after)) // self.every_ms

    def _until(self, at_ms: int) -> int:
        """Return the latest multiple at or before `at_ms`, regardless of the bounds."""
        return at_ms - (at_ms - self.phase_ms) % self.every_ms


class OnceRule(_Timeline, frozen=True):
    """A single instant."""

    at_ms: int

    def next_after(self, after_ms: int) -> int | None:
        return self.at_ms if self.at_ms > after_ms else None

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        return self.at_ms if after_ms < self.at_ms <= until_ms else None

    def count(self, after_ms: int, until_ms: int) -> int:
        return int(after_ms < self.at_ms <= until_ms)


Rule = CronRule | IntervalRule | OnceRule


class RuleWith(_Timeline, frozen=True):
    """The occurrences of a rule, and other times."""

    whole: Rule
    added: tuple[int, ...]
    """Times that the rule does not have, in order."""

    def next_after(self, after_ms: int) -> int | None:
        found = self.whole.next_after(after_ms)
        added = next((each for each in self.added if each > after_ms), None)
        return added if found is None or (added is not None and added < found) else found

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        found = self.whole.last_until(until_ms, after_ms)
        return max(
            (each for each in (found, *self.added) if each is not None and after_ms < each <= until_ms), default=None
        )

    def count(self, after_ms: int, until_ms: int) -> int:
        return self.whole.count(after_ms, until_ms) + sum(after_ms < each <= until_ms for each in self.added)


class RuleWithout(_Timeline, frozen=True):
    """The occurrences of another rule without some of them."""

    whole: Rule | RuleWith
    left_out: tuple[int, ...]
    """Occurrences of the other rule, in order."""

    def next_after(self, after_ms: int) -> int | None:
        found = self.whole.next_after(after_ms)
        while found in self.left_out and found is not None:
            found = self.whole.next_after(found)
        return found

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        found = self.whole.last_until(until_ms, after_ms)
        while found in self.left_out and found is not None:
            found = self.whole.last_until(found - 1, after_ms)
        return found

    def count(self, after_ms: int, until_ms: int) -> int:
        return self.whole.count(after_ms, until_ms) - sum(after_ms < each <= until_ms for each in self.left_out)


Schedule = Rule | RuleWith | RuleWithout


def describe(at_ms: int, rule: Rule) -> Occurrence:
    """Return the occurrence of `rule` at `at_ms`, in UTC and in the rule's zone, with the effect of an offset change."""
    utc = local_text(at_ms, "UTC").replace("+00:00", "Z")
    if not isinstance(rule, CronRule):
        return Occurrence(at_ms, utc, utc)
    return Occurrence(at_ms, utc, local_text(at_ms, rule.timezone), rule.mark(at_ms))


def _clip_start(after_ms: int, start_ms: int | None) -> int:
    return after_ms if start_ms is None else max(after_ms, start_ms - 1)


def _clip_end(until_ms: int, end_ms: int | None) -> int:
    return until_ms if end_ms is None else min(until_ms, end_ms)
