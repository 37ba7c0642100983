"""Parsed cron expressions, and the wall-clock times that they match.

Times here are naive local times, in whole seconds since 1970-01-01T00:00 on the wall clock. The module `offset_changes` handles
offset changes of time zones, and `cron_parsing` has the dialect.
"""

from calendar import isleap
from collections.abc import Iterator
from datetime import date

import msgspec

HORIZON_YEARS = 50
"""Length of a search. An expression that does not match for this long counts as never matching again."""

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_YEAR = 9998
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
ALL_MONTHS = 0b1111111111110
ALL_DAYS = 0xFFFFFFFE
ALL_WEEKDAYS = 0b1111111
_EVERY_WEEK = 0b1_0000001_0000001_0000001_0000001
LAST_DAY = 32
LAST_WORKDAY = 33
LAST_WEEK = 6


class Cron(msgspec.Struct, frozen=True):
    """A parsed expression. Each field is a bit mask: bit 5 of `minutes` is set if minute 5 matches.

    Bits 32 and 33 of `days` are `L` and `LW`. `weekdays` has eight bits, Sunday first, for every week of a month, then
    eight for each of its first to fifth week, then eight for its last seven days.
    """

    text: str
    """The six fields in capitals, aliases resolved."""
    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    both_days: bool
    """True if a day must match both day of month and day of week, rather than one of them."""
    every_day: bool
    is_fixed: bool
    """True if its times of day are fixed: no `*` in second, minute and hour."""

    def has_days(self) -> bool:
        """Return whether any day of any year matches."""
        months = [month for month in range(1, 13) if self.months >> month & 1]
        lengths = {length for month in months for length in _possible_lengths(month)}
        return any(self._days_in(length, first) for length in lengths for first in range(7))

    def matches(self, local_s: int) -> bool:
        day, second = divmod(local_s, _DAY)
        return self._time_from(second) == second and self._on(day)

    def next_from(self, local_s: int) -> int | None:
        """Return the earliest match at or after `local_s`."""
        day, second = divmod(local_s, _DAY)
        time = self._time_from(second)
        if time is not None and self._on(day):
            return day * _DAY + time
        later = self._day_from(day + 1)
        return None if later is None else later * _DAY + self._first_time()

    def last_until(self, local_s: int) -> int | None:
        """Return the latest match at or before `local_s`."""
        day, second = divmod(local_s, _DAY)
        time = self._time_until(second)
        if time is not None and self._on(day):
            return day * _DAY + time
        earlier = self._day_until(day - 1)
        return None if earlier is None else earlier * _DAY + self._last_time()

    def count(self, from_s: int, before_s: int) -> int:
        """Return the number of matches in `from_s <= t < before_s`, without visiting each."""
        if before_s <= from_s:
            return 0
        (first, skipped), (last, added) = divmod(from_s, _DAY), divmod(before_s, _DAY)
        total = self._days_between(first, last) * self._times_before(_DAY)
        if self._on(first):
            total -= self._times_before(skipped)
        if self._on(last):
            total += self._times_before(added)
        return total

    def _on(self, day: int) -> bool:
        if self.every_day:
            return True
        at = date.fromordinal(day + _EPOCH)
        return bool(self.months >> at.month & 1 and self._days_of(at.year, at.month) >> at.day & 1)

    def _day_from(self, day: int) -> int | None:
        if self.every_day:
            return day
        at = date.fromordinal(day + _EPOCH)
        for year, month in self._months_from(at.year, at.month, at.year + HORIZON_YEARS):
            earliest = at.day if (year, month) == (at.year, at.month) else 1
            found = _lowest(self._days_of(year, month), earliest)
            if found >= 0:
                return date(year, month, found).toordinal() - _EPOCH
        return None

    def _day_until(self, day: int) -> int | None:
        if self.every_day:
            return day
        at = date.fromordinal(day + _EPOCH)
        for year, month in self._months_until(at.year, at.month, at.year - HORIZON_YEARS):
            latest = at.day if (year, month) == (at.year, at.month) else 31
            found = _highest(self._days_of(year, month), latest)
            if found >= 0:
                return date(year, month, found).toordinal() - _EPOCH
        return None

    def _days_between(self, first: int, last: int) -> int:
        """Return the number of matching days from `first` to the day before `last`."""
        if self.every_day:
            return last - first
        start, end = date.fromordinal(first + _EPOCH), date.fromordinal(last + _EPOCH)
        total = 0
        for year, month in self._months_from(start.year, start.month, end.year):
            days = self._days_of(year, month)
            if (year, month) == (start.year, start.month):
                days &= -1 << start.day
            if (year, month) >= (end.year, end.month):
                return total + (_below(days, end.day) if month == end.month else 0)
            total += days.bit_count()
        return total

    def _months_from(self, year: int, month: int, last_year: int) -> Iterator[tuple[int, int]]:
        while year <= min(last_year, _LAST_YEAR):
            month = _lowest(self.months, month)
            if month >= 0:
                yield year, month
            year, month = (year, month + 1) if 0 <= month < 12 else (year + 1, 1)

    def _months_until(self, year: int, month: int, first_year: int) -> Iterator[tuple[int, int]]:
        while year >= max(first_year, 1):
            month = _highest(self.months, month)
            if month >= 0:
                yield year, month
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)

    def _days_of(self, year: int, month: int) -> int:
        length = 29 if month == 2 and isleap(year) else _LENGTHS[month]
        return self._days_in(length, date(year, month, 1).toordinal() % 7)

    def _days_in(self, length: int, first: int) -> int:
        """Return the matching days of a month that has `length` days and begins on the weekday `first`."""
        by_date, by_weekday = self._by_date(length, first), self._by_weekday(length, first)
        matching = by_date & by_weekday if self.both_days else by_date | by_weekday
        return matching & ((2 << length) - 2)

    def _by_date(self, length: int, first: int) -> int:
        days = self.days & ALL_DAYS
        if self.days >> LAST_DAY & 1:
            days |= 1 << length
        if self.days >> LAST_WORKDAY & 1:
            past_monday = (first + length - 2) % 7
            days |= 1 << (length - max(past_monday - 4, 0))
        return days

    def _by_weekday(self, length: int, first: int) -> int:
        days = (_turn(self.weekdays & ALL_WEEKDAYS, first) * _EVERY_WEEK) << 1
        if self.weekdays > ALL_WEEKDAYS:
            for week in range(1, LAST_WEEK):
                days |= _turn(self.weekdays >> 8 * week & ALL_WEEKDAYS, first) << (7 * week - 6)
            days |= _turn(self.weekdays >> 8 * LAST_WEEK, first + length) << (length - 6)
        return days

    def _first_time(self) -> int:
        return _lowest(self.hours) * 3600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)

    def _last_time(self) -> int:
        return _highest(self.hours) * 3600 + _highest(self.minutes) * 60 + _highest(self.seconds)

    def _time_from(self, second: int) -> int | None:
        """Return the earliest time of day at or after `second`."""
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := _lowest(self.seconds, second)) >= 0:
                return hour * 3600 + minute * 60 + found
            if (found := _lowest(self.minutes, minute + 1)) >= 0:
                return hour * 3600 + found * 60 + _lowest(self.seconds)
        later = _lowest(self.hours, hour + 1)
        return later * 3600 + self._first_time() % 3600 if later >= 0 else None

    def _time_until(self, second: int) -> int | None:
        """Return the latest time of day at or before `second`."""
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := _highest(self.seconds, second)) >= 0:
                return hour * 3600 + minute * 60 + found
            if (found := _highest(self.minutes, minute - 1)) >= 0:
                return hour * 3600 + found * 60 + _highest(self.seconds)
        earlier = _highest(self.hours, hour - 1)
        return earlier * 3600 + self._last_time() % 3600 if earlier >= 0 else None

    def _times_before(self, second: int) -> int:
        """Return the number of matching times before `second` of a matching day."""
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        a_minute = self.seconds.bit_count()
        total = _below(self.hours, hour) * self.minutes.bit_count() * a_minute
        if self.hours >> hour & 1:
            total += _below(self.minutes, minute) * a_minute
            if self.minutes >> minute & 1:
                total += _below(self.seconds, second)
        return total


def _possible_lengths(month: int) -> tuple[int, ...]:
    return (28, 29) if month == 2 else (_LENGTHS[month],)


def _lowest(mask: int, at_least: int = 0) -> int:
    """Return the lowest bit of `mask` from `at_least` on, or -1 if there is none."""
    rest = mask >> at_least
    return at_least + (rest & -rest).bit_length() - 1 if rest else -1


def _highest(mask: int, at_most: int = 63) -> int:
    """Return the highest bit of `mask` up to `at_most`, or -1 if there is none."""
    return (mask & ((1 << at_most + 1) - 1)).bit_length() - 1


def _below(mask: int, bit: int) -> int:
    return (mask & ((1 << bit) - 1)).bit_count()


def _turn(weekdays: int, first: int) -> int:
    """Return the bits of a week that begins on the weekday `first` instead of on Sunday."""
    return (weekdays * 0b10000001 >> first % 7) & ALL_WEEKDAYS
