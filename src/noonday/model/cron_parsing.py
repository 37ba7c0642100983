"""Parser of cron expressions.

The dialect has five fields, or six with the second first. It has names, lists, ranges, steps, `L` and `LW` as day of month,
`5L` and `MON#1` as day of week, and aliases such as `@daily`. If neither day field begins with `*`, a day has to match one of
the two; otherwise it has to match both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from cronsim.explain import explain as explain_fields

from noonday.model.cron import ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, LAST_DAY, LAST_WEEK, LAST_WORKDAY, Cron
from noonday.model.errors import Flaw, InvalidInput, nearest

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
    cron = parse(expression)
    text = _TH.sub(lambda number: number[1] + _ENDINGS[number[2]], explain_fields(cron.text))
    text = _DAYS.sub(r"days \1 to \2 of the month", text)
    days, conjunction, weekdays = text.rpartition(" and on ")
    # Two restricted day fields mean either of them. The library writes "and", which readers take for both.
    if cron.both_days or not conjunction:
        return text
    if _NTH not in weekdays:
        weekdays = _WEEKDAY.sub(r"\1s", weekdays)
    return f"{days}, or on {weekdays}"


_DAYS = re.compile(r"every day of month from (\d+) through (\d+)")
_WEEKDAY = re.compile(r"\b((?:Sun|Mon|Tues|Wednes|Thurs|Fri|Satur)day)\b")
_NTH = " of the month"


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
        return 1 << (LAST_DAY if word == "L" else LAST_WORKDAY)
    if part is _DAY_OF_WEEK and "#" in word:
        return _nth_weekday(term, *word.split("#", 1))
    if part is _DAY_OF_WEEK and word.endswith("L"):
        return 1 << 8 * LAST_WEEK + _number(part, term, word[:-1]) % 7
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
    any_date, any_weekday = days & ALL_DAYS == ALL_DAYS, weekdays & ALL_WEEKDAYS == ALL_WEEKDAYS
    return Cron(
        text=" ".join(texts),
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        both_days=both_days,
        every_day=months == ALL_MONTHS and (any_date and any_weekday if both_days else any_date or any_weekday),
        is_fixed="*" not in "".join(texts[:3]),
    )


def _refuse_if_never(cron: Cron) -> None:
    if not cron.has_days():
        _, _, _, day, month, weekday = cron.text.split()
        beside = "" if weekday == "*" else f' and day of week "{weekday}"'
        _DAY_OF_MONTH.refuse(day, f'never occurs with month "{month}"{beside}')
