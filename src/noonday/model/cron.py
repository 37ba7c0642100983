"""Cron expressions: parsing, and the wall-clock times that they match.

Times here are naive local times, in whole seconds since 1970-01-01T00:00 on the wall clock. The module `schedule` handles
offset changes of time zones.

The dialect has five fields, or six with the second first. It has names, lists, ranges, steps, `L` and `LW` as day of month,
`5L` and `MON#1` as day of week, and aliases such as `@daily`. If neither day field begins with `*`, a day has to match one of
the two; otherwise it has to match both.
"""

import re
from calendar import isleap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import NoReturn

import msgspec
from cronsim.explain import explain as explain_fields

from noonday.model.errors import Flaw, InvalidInput, nearest

HORIZON_YEARS = 50
"""Length of a search. An expression that does not match for this long counts as never matching again."""

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@minutely": "* * * * *",
    "@secondly": "* * * * * *",
}

_POINTER = "/schedule"
_LONGEST = 256
_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_YEAR = 9998
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ALL_MONTHS = 0b1111111111110
_ALL_DAYS = 0xFFFFFFFE
_ALL_WEEKDAYS = 0b1111111
_EVERY_WEEK = 0b1_0000001_0000001_0000001_0000001
_LAST_DAY = 32
_LAST_WORKDAY = 33
_LAST_WEEK = 6


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
    """Whether a day must match both day of month and day of week, rather than one of them."""
    every_day: bool
    is_fixed: bool
    """Whether its times of day are fixed: no `*` in second, minute and hour."""

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
        days = self.days & _ALL_DAYS
        if self.days >> _LAST_DAY & 1:
            days |= 1 << length
        if self.days >> _LAST_WORKDAY & 1:
            past_monday = (first + length - 2) % 7
            days |= 1 << (length - max(past_monday - 4, 0))
        return days

    def _by_weekday(self, length: int, first: int) -> int:
        days = (_turn(self.weekdays & _ALL_WEEKDAYS, first) * _EVERY_WEEK) << 1
        if self.weekdays > _ALL_WEEKDAYS:
            for week in range(1, _LAST_WEEK):
                days |= _turn(self.weekdays >> 8 * week & _ALL_WEEKDAYS, first) << (7 * week - 6)
            days |= _turn(self.weekdays >> 8 * _LAST_WEEK, first + length) << (length - 6)
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


@lru_cache(maxsize=8192)
def parse(expression: str) -> Cron:
    """Parse an expression. Raises `InvalidInput` with a flaw for each bad field."""
    texts = _split(expression)
    masks, flaws = [], list[Flaw]()
    for part, text in zip(_FIELDS, texts, strict=True):
        try:
            masks.append(_mask(part, text))
        except InvalidInput as error:
            flaws.extend(error.flaws)
    if flaws:
        raise InvalidInput("; ".join(flaw.detail for flaw in flaws), flaws)
    cron = _assemble([text.upper() for text in texts], masks)
    _refuse_if_never(cron)
    return cron


def explain(expression: str) -> str:
    """Describe an expression in English, such as `At 03:00 on Monday through Friday`."""
    return _TH.sub(lambda number: number[1] + _ENDINGS[number[2]], explain_fields(parse(expression).text))


_TH = re.compile(r"\b([2-9]?)(?<!1)([123])th\b")
_ENDINGS = {"1": "1st", "2": "2nd", "3": "3rd"}


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    also: str = ""

    @property
    def allowed(self) -> str:
        named = f" or {' '.join(self.names)}" if self.names else ""
        return f"*, {self.low}-{self.high}{named}, lists (a,b), ranges (a-b), steps (*/n, a-b/n){self.also}"

    def refuse(self, term: str, reason: str, suggestion: str | None = None) -> NoReturn:
        detail = f'{self.name} "{term}": {reason}'
        raise InvalidInput.of(_POINTER, detail, term, allowed=self.allowed, nearest=suggestion)


_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_DAY_OF_MONTH = _Field("day of month", 1, 31, also=", L (last day), LW (last day from Monday to Friday)")
_DAY_OF_WEEK = _Field(
    "day of week",
    0,
    7,
    {name: number for number, name in enumerate(_WEEKDAYS)},
    also=", 5L (last Friday), MON#1 (first Monday); 0 and 7 are Sunday",
)
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _DAY_OF_MONTH,
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _DAY_OF_WEEK,
)


def _split(expression: str) -> list[str]:
    if len(expression) > _LONGEST:
        raise InvalidInput.of(
            _POINTER, "the cron expression is too long", expression[:40], allowed=f"at most {_LONGEST} characters"
        )
    texts = _resolve(expression.strip()).split()
    if len(texts) == 5:
        texts.insert(0, "0")
    if len(texts) != 6:
        raise InvalidInput.of(
            _POINTER,
            f'"{expression}" has {len(texts)} field{"s" * (len(texts) != 1)}',
            expression,
            allowed="5 fields: minute, hour, day of month, month, day of week; or 6 with the second first; or an alias",
        )
    return texts


def _resolve(expression: str) -> str:
    if not expression.startswith("@"):
        return expression
    if expression.lower() in ALIASES:
        return ALIASES[expression.lower()]
    if expression.lower().startswith("@every"):
        raise InvalidInput.of(_POINTER, "@every is not a cron alias: use the type INTERVAL", expression)
    raise InvalidInput.of(
        _POINTER,
        f'there is no alias "{expression}"',
        expression,
        allowed=list(ALIASES),
        nearest=nearest(expression.lower(), ALIASES),
    )


def _mask(part: _Field, text: str) -> int:
    mask = 0
    for term in text.split(","):
        mask |= _term(part, term)
    return mask


def _term(part: _Field, term: str) -> int:
    word = term.upper()
    if part is _DAY_OF_MONTH and word in ("L", "LW"):
        return 1 << (_LAST_DAY if word == "L" else _LAST_WORKDAY)
    if part is _DAY_OF_WEEK and "#" in word:
        return _nth_weekday(term, *word.split("#", 1))
    if part is _DAY_OF_WEEK and word.endswith("L"):
        return 1 << 8 * _LAST_WEEK + _number(part, term, word[:-1]) % 7
    base, slash, step = word.partition("/")
    low, high = _range(part, term, base, stepped=bool(slash))
    return sum(1 << value for value in range(low, high + 1, _step(part, term, step) if slash else 1))


def _nth_weekday(term: str, weekday: str, which: str) -> int:
    if which not in ("1", "2", "3", "4", "5"):
        _DAY_OF_WEEK.refuse(term, f'"{which}" after # is not a number from 1 to 5')
    return 1 << 8 * int(which) + _number(_DAY_OF_WEEK, term, weekday) % 7


def _range(part: _Field, term: str, base: str, *, stepped: bool) -> tuple[int, int]:
    if base == "*":
        return part.low, part.high
    start, dash, end = base.partition("-")
    low = _number(part, term, start)
    if not dash:
        return low, part.high if stepped else low
    high = _number(part, term, end)
    if high < low:
        part.refuse(term, f"the range runs backwards; write {start}-{part.high},{part.low}-{end}")
    return low, high


def _step(part: _Field, term: str, step: str) -> int:
    size = part.high - part.low + 1
    if not _is_number(step) or not 1 <= int(step) <= size:
        part.refuse(term, f'the step "{step}" is not a number from 1 to {size}')
    return int(step)


def _number(part: _Field, term: str, text: str) -> int:
    if text in part.names:
        return part.names[text]
    if not _is_number(text):
        subject = "" if text == term.upper() else f'"{text}" is ' if text else "a part is missing; it is "
        part.refuse(term, f"{subject}not {_kind(part)}", nearest(text, part.names))
    if not part.low <= int(text) <= part.high:
        part.refuse(term, f"{text} is not from {part.low} to {part.high}")
    return int(text)


def _kind(part: _Field) -> str:
    return f"a number or one of {' '.join(part.names)}" if part.names else "a number"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _assemble(texts: list[str], masks: list[int]) -> Cron:
    seconds, minutes, hours, days, months, weekdays = masks
    # Both 0 and 7 are Sunday.
    weekdays = weekdays & ~(1 << 7) | weekdays >> 7 & 1
    both_days = texts[3].startswith("*") or texts[5].startswith("*")
    any_date, any_weekday = days & _ALL_DAYS == _ALL_DAYS, weekdays & _ALL_WEEKDAYS == _ALL_WEEKDAYS
    return Cron(
        text=" ".join(texts),
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        both_days=both_days,
        every_day=months == _ALL_MONTHS and (any_date and any_weekday if both_days else any_date or any_weekday),
        is_fixed="*" not in "".join(texts[:3]),
    )


def _refuse_if_never(cron: Cron) -> None:
    lengths = {length for month in range(1, 13) if cron.months >> month & 1 for length in _possible_lengths(month)}
    if not any(cron._days_in(length, first) for length in lengths for first in range(7)):
        _, _, _, day, month, weekday = cron.text.split()
        beside = "" if weekday == "*" else f' and day of week "{weekday}"'
        _DAY_OF_MONTH.refuse(day, f'never occurs with month "{month}"{beside}')


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
    return (weekdays * 0b10000001 >> first % 7) & _ALL_WEEKDAYS
