"""Parser of interval phrases: "every 15 minutes", "daily at 08:00", "weekly on mon and fri at 9am".

There are two kinds. "Every N seconds, minutes, hours, days or weeks" is a duration, counted from the creation of the task.
Phrases with daily, weekly, monthly, a day or a time of day follow the calendar of the task's time zone. A calendar word
alone means the cron alias of its name: "daily" is `@daily`, at midnight. Ambiguous phrases ("monthly on 31", "daily at 8")
are refused.
"""

import re
from collections.abc import Iterable

import msgspec

from noonday.model.cron_parsing import ALIASES
from noonday.model.errors import InvalidInput, nearest
from noonday.model.job import YEAR_SEC, JobType

POINTER = "/interval"
LONGEST = 200
LONGEST_INTERVAL_SEC = 100 * YEAR_SEC

ALLOWED = (
    "every 30 seconds",
    "every 15 minutes",
    "every hour",
    "every 2 days",
    "every 2 weeks",
    "hourly",
    "daily",
    "daily at 08:00",
    "every day at 8:30",
    "weekly",
    "weekly on mon 09:00",
    "weekly on monday and friday at 9am",
    "every weekday at 09:00",
    "monthly",
    "monthly on 1 at 00:00",
    "monthly on last day at noon",
)
"""Examples of every supported form, for error messages."""


class Timing(msgspec.Struct, frozen=True):
    """Schedule of a phrase in the fields of a job: INTERVAL with `every_sec`, or CRON with `schedule` and `timezone`."""

    type: JobType
    every_sec: int | None = None
    schedule: str | None = None
    timezone: str | None = None

    def phase_sec(self, created_ms: int) -> float:
        """Return the phase that makes an INTERVAL count from its creation; 0 for CRON.

        Intervals count from 1970. Without a phase, "every 2 hours" created at 09:59 would fire a minute later, together with
        every other task of the same interval. With it, the first fire is one whole interval after creation.
        """
        return created_ms % (self.every_sec * 1000) / 1000 if self.every_sec else 0


def read_interval(text: str, timezone: str | None = None) -> Timing:
    """Parse a phrase, ignoring case and extra spaces. Calendar phrases use `timezone`, or UTC if it is None.

    Raises InvalidInput with a flaw at `/interval`, which lists examples and the nearest phrase. The time zone is not checked
    here; the check of the job does it.
    """
    phrase = " ".join(text[: LONGEST + 1].lower().split())
    if len(text) > LONGEST:
        raise _refusal(phrase, f"an interval has at most {LONGEST} characters")
    every = _distance(phrase)
    if every is not None:
        return Timing(JobType.INTERVAL, every_sec=every)
    return Timing(JobType.CRON, schedule=_calendar(phrase), timezone=timezone or "UTC")


_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}
_SHORT = {"sec": "second", "min": "minute", "hr": "hour"}
_DISTANCE = re.compile(rf"every(?: ([0-9]{{1,12}}))? ?({'|'.join([*_UNITS, *_SHORT])})(s?)")


def _distance(phrase: str) -> int | None:
    """Return the seconds of a phrase such as "every 15 minutes", or None if it is not a duration."""
    found = _DISTANCE.fullmatch(phrase)
    if found is None:
        return None
    number, unit, plural = found.groups()
    if number is None and plural:
        raise _refusal(
            phrase, f'the number of {unit}s is missing: write "every {unit}" or "every 2 {unit}s"', f"every {unit}"
        )
    every = int(number or 1) * _UNITS[_SHORT.get(unit, unit)]
    if not 1 <= every <= LONGEST_INTERVAL_SEC:
        raise _refusal(phrase, "an interval is from 1 second to 100 years")
    return every


_TIME = r"(?P<time>[0-9]{1,2}:[0-9]{2}(?: ?[ap]m)?|[0-9]{1,2} ?[ap]m|noon|midnight)"
_AT = rf"(?: (?:at )?{_TIME})"
_AND = r"(?: ?, ?(?:and )?| and )"
_WEEKDAYS = {
    name: number
    for number, names in enumerate(
        (
            ("sun", "sunday"),
            ("mon", "monday"),
            ("tue", "tues", "tuesday"),
            ("wed", "wednesday"),
            ("thu", "thur", "thurs", "thursday"),
            ("fri", "friday"),
            ("sat", "saturday"),
        )
    )
    for name in names
}
_WEEKDAY = rf"(?:{'|'.join(_WEEKDAYS)})s?"
_WEEKDAY_LIST = rf"(?P<weekdays>weekdays?|weekends?|{_WEEKDAY}(?:{_AND}{_WEEKDAY})*)"
_DATE = r"(?:the )?(?:day )?(?:[0-9]{1,2}(?:st|nd|rd|th)?|last(?: day)?)"
_DATE_LIST = rf"(?P<dates>{_DATE}(?:{_AND}{_DATE})*)"
_CALENDAR = (
    re.compile(rf"(?:daily|every day){_AT}"),
    re.compile(rf"(?:(?:weekly|every week) on|every) {_WEEKDAY_LIST}{_AT}?"),
    re.compile(rf"(?:monthly|every month) on {_DATE_LIST}{_AT}?"),
)
_ALONE = {"hourly", "daily", "weekly", "monthly"}
_IN_EVERY_MONTH = 28
_LAST_DAY = 32
"""Sorts after all dates; in cron it is `L`."""


def _calendar(phrase: str) -> str:
    """Return the cron expression of a calendar phrase."""
    if phrase in _ALONE:
        return ALIASES[f"@{phrase}"]
    found = next((match for match in (form.fullmatch(phrase) for form in _CALENDAR) if match), None)
    if found is None:
        raise _not_understood(phrase)
    groups = found.groupdict()
    hour, minute = _time(phrase, groups["time"] or "midnight")
    dates = _dates(phrase, groups["dates"]) if groups.get("dates") else "*"
    weekdays = _weekdays(groups["weekdays"]) if groups.get("weekdays") else "*"
    return f"{minute} {hour} {dates} * {weekdays}"


def _time(phrase: str, time: str) -> tuple[int, int]:
    if time in ("noon", "midnight"):
        return (12 if time == "noon" else 0), 0
    clock, half = time.removesuffix("am").removesuffix("pm").strip(), time[-2:]
    hour_text, _, minute_text = clock.partition(":")
    hour, minute = int(hour_text), int(minute_text or 0)
    if minute > 59 or not (1 <= hour <= 12 if half in ("am", "pm") else hour <= 23):
        raise _refusal(phrase, f'"{time}" is not a time of day: write 00:00 to 23:59, or 12am to 11:59pm')
    if half in ("am", "pm"):
        hour = hour % 12 + (12 if half == "pm" else 0)
    return hour, minute


def _weekdays(listed: str) -> str:
    if listed.startswith("weekday"):
        return "1-5"
    if listed.startswith("weekend"):
        return "0,6"
    return _cron_list({_weekday(day) for day in _items(listed)})


def _weekday(word: str) -> int:
    return _WEEKDAYS[word] if word in _WEEKDAYS else _WEEKDAYS[word.removesuffix("s")]


def _dates(phrase: str, listed: str) -> str:
    return _cron_list({_date(phrase, item) for item in _items(listed)}).replace(str(_LAST_DAY), "L")


def _date(phrase: str, item: str) -> int:
    if "last" in item:
        return _LAST_DAY
    date = int("".join(filter(str.isdigit, item)))
    if 1 <= date <= _IN_EVERY_MONTH:
        return date
    if 1 <= date <= 31:
        detail = f'not every month has a day {date}: write "last day", or use cron_expression'
        raise _refusal(phrase, detail, phrase.replace(item, "last day", 1))
    raise _refusal(phrase, f"no month has a day {date}")


def _items(listed: str) -> list[str]:
    return re.split(_AND, listed)


def _cron_list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


_MISSING = (
    (re.compile(r"(weekly|every week)( at)? .*"), "the day is missing", "weekly on mon 09:00"),
    (re.compile(r"(monthly|every month)( at .*)?"), "the day is missing", "monthly on 1 at 00:00"),
    (re.compile(r".* [0-9]{1,2}"), "a time of day needs minutes, am or pm: 08:00, 8am", None),
)


def _not_understood(phrase: str) -> InvalidInput:
    detail = f'"{_shortened(phrase)}" is not understood'
    for form, hint, meant in _MISSING:
        if form.fullmatch(phrase):
            return _refusal(phrase, f"{detail}; {hint}", meant)
    return _refusal(phrase, detail)


def _refusal(phrase: str, detail: str, meant: str | None = None) -> InvalidInput:
    shown = _shortened(phrase)
    meant = meant or nearest(shown, [*_with_same_number(shown), *ALLOWED])
    return InvalidInput.of(POINTER, detail, shown, allowed=list(ALLOWED), nearest=meant)


def _with_same_number(phrase: str) -> list[str]:
    """Return suggestions that keep the number of the phrase: "evry 5 minuts" means 5, not 15."""
    found = re.search(r"([1-9][0-9]{0,5}) ?([a-z]*)", phrase)
    if found is None or ":" in phrase:
        return []
    likely = [unit for unit in _UNITS if found[2] and unit.startswith(found[2])]
    return [f"every {found[1]} {unit}s" for unit in likely or _UNITS]


def _shortened(phrase: str) -> str:
    return phrase[:60]
