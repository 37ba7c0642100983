"""Offset changes of time zones: the instants at which the wall clock of a zone shows times that a cron expression matches.

Real time is divided into stretches of one offset each, and a cron expression is matched against the wall times of a stretch. For
fixed times, a stretch loses the pass of a repeated hour that does not count, and each gap adds a stretch of its own, which may
run beside the real one. An instant that both contain is one occurrence.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from noonday.model.cron import Cron
from noonday.model.zones import zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_EARLIEST_S = -2_208_988_800
"""The year 1900. Older offsets are the local mean times of single towns."""
_LATEST_S = 250_000_000_000
"""The year 9892. One search horizon later, four-digit years end."""
BLOCK_BITS = 25
"""Stretches are computed and cached for blocks of 2**25 seconds, a little over a year."""
_MARGIN_S = 2 * _DAY
"""Reach of the effect of an offset change. Zones that crossed the date line changed by a whole day."""
_PROBE_S = 2 * _DAY
"""Step of the search for offset changes. The two nearest changes that any zone ever had were a week apart."""


class Gap(StrEnum):
    """Policy for a fixed time that the clocks skip."""

    SHIFT = "SHIFT"
    """Fire later by the width of the gap: 02:30 becomes 03:30."""
    FIRST = "FIRST"
    """Fire at the first instant after the gap: 02:30 becomes 03:00."""
    SKIP = "SKIP"


class Repeat(StrEnum):
    """Policy for a fixed time that the clocks show twice: the pass in which it fires."""

    FIRST = "FIRST"
    SECOND = "SECOND"
    BOTH = "BOTH"


def _indexes(from_s: int, before_s: int) -> range:
    """Return the indexes of the blocks that contain `from_s <= t < before_s`."""
    from_s, before_s = max(from_s, _EARLIEST_S), min(before_s, _LATEST_S)
    return range(from_s >> BLOCK_BITS, (before_s - 1 >> BLOCK_BITS) + 1)


def blocks_forwards(cron: Cron, from_s: int, before_s: int) -> Iterator[int]:
    """Yield the blocks that may contain an occurrence, in order. Years without a matching wall time are skipped."""
    blocks = _indexes(from_s, before_s)
    index = blocks.start
    while index < blocks.stop:
        yield index
        wall_s = cron.next_from((index + 1 << BLOCK_BITS) - _MARGIN_S)
        if wall_s is None:
            return
        index = max(index + 1, wall_s - _MARGIN_S >> BLOCK_BITS)


def blocks_backwards(cron: Cron, from_s: int, before_s: int) -> Iterator[int]:
    """Yield blocks like `blocks_forwards`, beginning with the last."""
    blocks = _indexes(from_s, before_s)
    index = blocks.stop - 1
    while index >= blocks.start:
        yield index
        wall_s = cron.last_until((index << BLOCK_BITS) + _MARGIN_S)
        if wall_s is None:
            return
        index = min(index - 1, wall_s + _MARGIN_S >> BLOCK_BITS)


class Stretch(msgspec.Struct, frozen=True):
    """Instants from `start_s` to before `end_s` whose wall time is, or counts as, `offset_s` ahead of UTC."""

    start_s: int
    end_s: int
    offset_s: int
    squeezed_s: int = 0
    """If not 0, this many seconds of wall time, from that of `start_s` on, all fire at `start_s`."""

    def first(self, cron: Cron, from_s: int) -> int | None:
        if from_s >= self.end_s:
            return None
        local_s = cron.next_from(max(from_s, self.start_s) + self.offset_s)
        if local_s is None or local_s - self.offset_s >= self.start_s + self._width_s:
            return None
        return self.start_s if self.squeezed_s else local_s - self.offset_s

    def last(self, cron: Cron, until_s: int) -> int | None:
        if until_s < self.start_s:
            return None
        if self.squeezed_s:
            return self.first(cron, self.start_s)
        local_s = cron.last_until(min(until_s, self.end_s - 1) + self.offset_s)
        return None if local_s is None or local_s - self.offset_s < self.start_s else local_s - self.offset_s

    def has(self, cron: Cron, at_s: int) -> bool:
        return self.start_s <= at_s < self.end_s and self.first(cron, at_s) == at_s

    def each(self, cron: Cron, from_s: int, before_s: int) -> Iterator[int]:
        found = self.first(cron, from_s)
        while found is not None and found < before_s:
            yield found
            found = self.first(cron, found + 1)

    def count(self, cron: Cron, from_s: int, before_s: int) -> int:
        from_s, before_s = max(from_s, self.start_s), min(before_s, self.end_s)
        return cron.count(from_s + self.offset_s, before_s + self.offset_s)

    @property
    def _width_s(self) -> int:
        return self.squeezed_s or self.end_s - self.start_s


class Block(msgspec.Struct, frozen=True):
    """All stretches of about a year: those of real time, in order, and those that replace gaps."""

    real: tuple[Stretch, ...]
    gaps: tuple[Stretch, ...] = ()

    def first(self, cron: Cron, from_s: int) -> int | None:
        found = next((at for at in (stretch.first(cron, from_s) for stretch in self.real) if at is not None), None)
        for gap in self.gaps:
            at = gap.first(cron, from_s)
            if at is not None and (found is None or at < found):
                found = at
        return found

    def last(self, cron: Cron, until_s: int) -> int | None:
        every = (stretch.last(cron, until_s) for stretch in self.real + self.gaps)
        return max((at for at in every if at is not None), default=None)

    def count(self, cron: Cron, from_s: int, before_s: int) -> int:
        real = sum(stretch.count(cron, from_s, before_s) for stretch in self.real)
        from_gaps = (at for gap in self.gaps for at in gap.each(cron, from_s, before_s))
        return real + sum(not self._is_real(cron, at) for at in from_gaps)

    def is_from_gap(self, cron: Cron, at_s: int) -> bool:
        """Return whether `at_s` is an occurrence only because of a gap."""
        return any(gap.has(cron, at_s) for gap in self.gaps) and not self._is_real(cron, at_s)

    def _is_real(self, cron: Cron, at_s: int) -> bool:
        return any(stretch.has(cron, at_s) for stretch in self.real)


@lru_cache(maxsize=4096)
def real_block(timezone: str, index: int) -> Block:
    return Block(_within(index, real_stretches(timezone, index)))


@lru_cache(maxsize=4096)
def fixed_block(timezone: str, index: int, gap: Gap, repeat: Repeat) -> Block:
    real = real_stretches(timezone, index)
    return Block(_within(index, _counted_passes(real, repeat)), _within(index, _gap_stretches(real, gap)))


def _counted_passes(real: tuple[Stretch, ...], repeat: Repeat) -> list[Stretch]:
    """Return the stretches without the pass of each repeated hour that does not count."""
    counted = list(real)
    for i, (earlier, later) in enumerate(pairwise(real)):
        repeated_s = earlier.offset_s - later.offset_s
        if repeated_s > 0 and repeat is Repeat.FIRST:
            counted[i + 1] = replace(counted[i + 1], start_s=later.start_s + repeated_s)
        if repeated_s > 0 and repeat is Repeat.SECOND:
            counted[i] = replace(counted[i], end_s=earlier.end_s - repeated_s)
    return counted


def _gap_stretches(real: tuple[Stretch, ...], gap: Gap) -> Iterator[Stretch]:
    """Yield a stretch for each gap, in which the skipped wall times fire."""
    for earlier, later in pairwise(real):
        skipped_s, at_s = later.offset_s - earlier.offset_s, later.start_s
        if skipped_s > 0 and gap is Gap.SHIFT:
            yield Stretch(at_s, at_s + skipped_s, earlier.offset_s)
        if skipped_s > 0 and gap is Gap.FIRST:
            yield Stretch(at_s, at_s + 1, earlier.offset_s, squeezed_s=skipped_s)


def _within(index: int, stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    start_s, end_s = index << BLOCK_BITS, (index + 1) << BLOCK_BITS
    cut = (replace(one, start_s=max(one.start_s, start_s), end_s=min(one.end_s, end_s)) for one in stretches)
    return tuple(one for one in cut if one.start_s < one.end_s)


@lru_cache(maxsize=4096)
def real_stretches(timezone: str, index: int) -> tuple[Stretch, ...]:
    """Return the stretches of a block and a margin around it, so that both sides of a change near its edges are seen."""
    where = zone(timezone)
    start_s, end_s = (index << BLOCK_BITS) - _MARGIN_S, ((index + 1) << BLOCK_BITS) + _MARGIN_S
    stretches, offset_s = [], _offset_s(where, start_s)
    for at_s in range(start_s, end_s, _PROBE_S):
        ahead_s = min(at_s + _PROBE_S, end_s)
        if (new_s := _offset_s(where, ahead_s)) != offset_s:
            change_s = _change_s(where, at_s, ahead_s)
            stretches.append(Stretch(start_s, change_s, offset_s))
            start_s, offset_s = change_s, new_s
    return (*stretches, Stretch(start_s, end_s, offset_s))


def _change_s(where: ZoneInfo, from_s: int, until_s: int) -> int:
    """Return the first second that has the offset of `until_s`."""
    new_s = _offset_s(where, until_s)
    seconds = range(from_s, until_s)
    return from_s + bisect_left(seconds, True, key=lambda at_s: _offset_s(where, at_s) == new_s)


def _offset_s(where: ZoneInfo, at_s: int) -> int:
    offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(where).utcoffset()
    return (offset or timedelta()) // timedelta(seconds=1)
