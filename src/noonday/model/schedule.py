"""Schedule rules: when a job is due, and what happens when its time zone changes its offset.

A cron job with fixed times of day (`30 2 * * *`) runs on each of its days. A time that the clocks skip fires once, later by
the width of the gap. A time that the clocks show twice fires once, the first time. A job may choose otherwise with `gap` and
`repeat`. A cron job with a `*` among second, minute and hour follows real time: it fires at every instant whose wall time
matches. It never fires in a gap, and it fires in both passes of a repeated hour.

The computation divides real time into stretches of one offset each, and matches the cron against the wall times of a stretch.
For fixed times, a stretch loses the pass of a repeated hour that does not count, and each gap adds a stretch of its own, which
may run beside the real one. An instant that both contain is one occurrence.

Zones always come from the `tzdata` package, so nodes with the same packages agree on every timeline.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from itertools import islice, pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from noonday.model.cron import HORIZON_YEARS, Cron, parse
from noonday.model.errors import InvalidInput, nearest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_HORIZON_S = HORIZON_YEARS * 366 * _DAY
_EARLIEST_S = -2_208_988_800
"""The year 1900. Older offsets are the local mean times of single towns."""
_LATEST_S = 250_000_000_000
"""The year 9892. One search horizon later, four-digit years end."""
_BLOCK_BITS = 25
"""Stretches are computed and cached for blocks of 2**25 seconds, a little over a year."""
_MARGIN_S = 2 * _DAY
"""How far the effect of an offset change reaches. Zones that crossed the date line changed by a whole day."""
_FRUITLESS = 12
"""Number of blocks with a matching wall time that are searched for one that exists."""
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
        for index in islice(_promising(cron, from_s, before_s), _FRUITLESS):
            found = self._block(cron, index).first(cron, from_s)
            if found is not None:
                return found * 1000 if found < before_s else None
        return None

    def last_until(self, until_ms: int, after_ms: int) -> int | None:
        cron = parse(self.expression)
        after_s = _clip_start(after_ms, self.start_ms) // 1000
        until_s = _clip_end(until_ms, self.end_ms) // 1000
        for index in islice(_promising_backwards(cron, after_s + 1, until_s + 1), _FRUITLESS):
            found = self._block(cron, index).last(cron, until_s)
            if found is not None:
                return found * 1000 if found > after_s else None
        return None

    def count(self, after_ms: int, until_ms: int) -> int:
        cron = parse(self.expression)
        from_s = _clip_start(after_ms, self.start_ms) // 1000 + 1
        before_s = _clip_end(until_ms, self.end_ms) // 1000 + 1
        return sum(
            self._block(cron, index).count(cron, from_s, before_s) for index in _promising(cron, from_s, before_s)
        )

    def mark(self, at_ms: int) -> DstMark | None:
        """Return the effect of an offset change on the occurrence at `at_ms`, if there is one."""
        cron, at_s = parse(self.expression), at_ms // 1000
        if self._block(cron, at_s >> _BLOCK_BITS).is_from_gap(cron, at_s):
            return DstMark.GAP_SHIFTED
        for earlier, later in pairwise(_real_stretches(self.timezone, at_s >> _BLOCK_BITS)):
            repeated_s = earlier.offset_s - later.offset_s
            if later.start_s - repeated_s <= at_s < later.start_s:
                return DstMark.REPEATED_FIRST
            if later.start_s <= at_s < later.start_s + repeated_s:
                return DstMark.REPEATED_SECOND
        return None

    def _block(self, cron: Cron, index: int) -> "_Block":
        if cron.is_fixed:
            return _fixed_block(self.timezone, index, self.gap, self.repeat)
        return _real_block(self.timezone, index)


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


def describe(at_ms: int, rule: Rule) -> Occurrence:
    """Return the occurrence of `rule` at `at_ms`, in UTC and in the rule's zone, with the effect of an offset change."""
    utc = local_text(at_ms, "UTC").replace("+00:00", "Z")
    if not isinstance(rule, CronRule):
        return Occurrence(at_ms, utc, utc)
    return Occurrence(at_ms, utc, local_text(at_ms, rule.timezone), rule.mark(at_ms))


def local_text(at_ms: int, timezone: str) -> str:
    """Return the ISO 8601 wall time with its offset: `2026-03-08T03:30:00-04:00`."""
    local = (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone(timezone))
    return local.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds")


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """Return the zone with a name. Raises `InvalidInput` with the nearest name if there is none."""
    if name not in _zone_names():
        raise InvalidInput.of(
            "/timezone",
            f'there is no time zone "{name[:64]}"',
            name[:64],
            allowed="UTC or an IANA name such as Europe/Berlin",
            nearest=_nearest_zone(name[:64]),
        )
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def tzdata_version() -> str:
    """Return the version of the zone data in use, such as `2026a`. When it changes, stored fire times may be wrong."""
    return str(import_module("tzdata").IANA_VERSION)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("ascii").split())


@lru_cache(maxsize=1)
def _likely_zones() -> tuple[list[str], dict[str, str]]:
    """Return the zones to suggest, and the same by their lower-case names and cities."""
    # The sign of Etc/GMT+2 is the opposite of what people expect, so it is not suggested.
    known = sorted(name for name in _zone_names() if not name.startswith("Etc/GMT"))
    # If two zones have the same city, the shorter name is the usual one.
    cities = {name.rpartition("/")[2].lower(): name for name in sorted(known, key=len, reverse=True)}
    return known, cities | {name.lower(): name for name in known}


def _nearest_zone(name: str) -> str | None:
    known, folded = _likely_zones()
    spelled = name.strip().replace(" ", "_")
    # Three letters always resemble three others: PST is not EST.
    return folded.get(spelled.lower()) or (nearest(spelled, known) if len(spelled) > 4 else None)


def _clip_start(after_ms: int, start_ms: int | None) -> int:
    return after_ms if start_ms is None else max(after_ms, start_ms - 1)


def _clip_end(until_ms: int, end_ms: int | None) -> int:
    return until_ms if end_ms is None else min(until_ms, end_ms)


def _indexes(from_s: int, before_s: int) -> range:
    """Return the indexes of the blocks that contain `from_s <= t < before_s`."""
    from_s, before_s = max(from_s, _EARLIEST_S), min(before_s, _LATEST_S)
    return range(from_s >> _BLOCK_BITS, (before_s - 1 >> _BLOCK_BITS) + 1)


def _promising(cron: Cron, from_s: int, before_s: int) -> Iterator[int]:
    """Yield the blocks that may contain an occurrence, in order. Years without a matching wall time are skipped."""
    blocks = _indexes(from_s, before_s)
    index = blocks.start
    while index < blocks.stop:
        yield index
        wall_s = cron.next_from((index + 1 << _BLOCK_BITS) - _MARGIN_S)
        if wall_s is None:
            return
        index = max(index + 1, wall_s - _MARGIN_S >> _BLOCK_BITS)


def _promising_backwards(cron: Cron, from_s: int, before_s: int) -> Iterator[int]:
    """Yield blocks like `_promising`, beginning with the last."""
    blocks = _indexes(from_s, before_s)
    index = blocks.stop - 1
    while index >= blocks.start:
        yield index
        wall_s = cron.last_until((index << _BLOCK_BITS) + _MARGIN_S)
        if wall_s is None:
            return
        index = min(index - 1, wall_s + _MARGIN_S >> _BLOCK_BITS)


class _Stretch(msgspec.Struct, frozen=True):
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


class _Block(msgspec.Struct, frozen=True):
    """All stretches of about a year: those of real time, in order, and those that replace gaps."""

    real: tuple[_Stretch, ...]
    gaps: tuple[_Stretch, ...] = ()

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
def _real_block(timezone: str, index: int) -> _Block:
    return _Block(_within(index, _real_stretches(timezone, index)))


@lru_cache(maxsize=4096)
def _fixed_block(timezone: str, index: int, gap: Gap, repeat: Repeat) -> _Block:
    real = _real_stretches(timezone, index)
    return _Block(_within(index, _counted_passes(real, repeat)), _within(index, _gap_stretches(real, gap)))


def _counted_passes(real: tuple[_Stretch, ...], repeat: Repeat) -> list[_Stretch]:
    """Return the stretches without the pass of each repeated hour that does not count."""
    counted = list(real)
    for i, (earlier, later) in enumerate(pairwise(real)):
        repeated_s = earlier.offset_s - later.offset_s
        if repeated_s > 0 and repeat is Repeat.FIRST:
            counted[i + 1] = replace(counted[i + 1], start_s=later.start_s + repeated_s)
        if repeated_s > 0 and repeat is Repeat.SECOND:
            counted[i] = replace(counted[i], end_s=earlier.end_s - repeated_s)
    return counted


def _gap_stretches(real: tuple[_Stretch, ...], gap: Gap) -> Iterator[_Stretch]:
    """Yield a stretch for each gap, in which the skipped wall times fire."""
    for earlier, later in pairwise(real):
        skipped_s, at_s = later.offset_s - earlier.offset_s, later.start_s
        if skipped_s > 0 and gap is Gap.SHIFT:
            yield _Stretch(at_s, at_s + skipped_s, earlier.offset_s)
        if skipped_s > 0 and gap is Gap.FIRST:
            yield _Stretch(at_s, at_s + 1, earlier.offset_s, squeezed_s=skipped_s)


def _within(index: int, stretches: Iterable[_Stretch]) -> tuple[_Stretch, ...]:
    start_s, end_s = index << _BLOCK_BITS, (index + 1) << _BLOCK_BITS
    cut = (replace(one, start_s=max(one.start_s, start_s), end_s=min(one.end_s, end_s)) for one in stretches)
    return tuple(one for one in cut if one.start_s < one.end_s)


@lru_cache(maxsize=4096)
def _real_stretches(timezone: str, index: int) -> tuple[_Stretch, ...]:
    """Return the stretches of a block and a margin around it, so that both sides of a change near its edges are seen."""
    where = zone(timezone)
    start_s, end_s = (index << _BLOCK_BITS) - _MARGIN_S, ((index + 1) << _BLOCK_BITS) + _MARGIN_S
    stretches, offset_s = [], _offset_s(where, start_s)
    for at_s in range(start_s, end_s, _PROBE_S):
        ahead_s = min(at_s + _PROBE_S, end_s)
        if (new_s := _offset_s(where, ahead_s)) != offset_s:
            change_s = _change_s(where, at_s, ahead_s)
            stretches.append(_Stretch(start_s, change_s, offset_s))
            start_s, offset_s = change_s, new_s
    return (*stretches, _Stretch(start_s, end_s, offset_s))


def _change_s(where: ZoneInfo, from_s: int, until_s: int) -> int:
    """Return the first second that has the offset of `until_s`."""
    new_s = _offset_s(where, until_s)
    seconds = range(from_s, until_s)
    return from_s + bisect_left(seconds, True, key=lambda at_s: _offset_s(where, at_s) == new_s)


def _offset_s(where: ZoneInfo, at_s: int) -> int:
    offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(where).utcoffset()
    return (offset or timedelta()) // timedelta(seconds=1)
