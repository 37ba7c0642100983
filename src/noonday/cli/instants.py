"""Parsing and formatting of times and durations."""

import re
from datetime import UTC, datetime, time, timedelta

import click

from noonday.runtime.clock import SystemClock

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.IGNORECASE)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STEPS = ((1, "ms", 0.001), (60, "s", 1), (3600, "min", 60), (86_400 * 2, "h", 3600), (86_400 * 60, "days", 86_400))
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_ON_DAY = re.compile(r"(yesterday|today|tomorrow)?\s*(\d{1,2}:\d{2}(?::\d{2})?)?", re.IGNORECASE)
_MONTH = 30.44 * 86_400
_YEAR = 365.25 * 86_400


def now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def duration(text: str) -> timedelta:
    """Option type of a duration: seconds, or 90s, 5m, 1h30m, 2d, 1w, 250ms."""
    try:
        return read_duration(text)
    except ValueError as bad:
        raise click.BadParameter(str(bad)) from bad


def durations(text: str) -> list[timedelta]:
    """Option type of durations that are separated by commas."""
    return [duration(part) for part in text.split(",")]


def instant(text: str) -> datetime:
    """Option type of a time: ISO 8601, in local time if it has no offset; or 09:00, 2030-01-31, yesterday, now, +10m, -2h."""
    try:
        return read_instant(text, now().astimezone())
    except (ValueError, OverflowError) as bad:
        raise click.BadParameter(
            f"{text!r} is not a time; write 2030-01-31T09:00:00Z, local time such as '2030-01-31 09:00' or 09:00, "
            "or today, yesterday, 'tomorrow 09:00', now, +10m, -2h"
        ) from bad


def read_duration(text: str) -> timedelta:
    """Parse a duration. Raises ValueError with the accepted formats."""
    plain = text.strip()
    try:
        if re.fullmatch(r"\d+(\.\d+)?", plain):
            return timedelta(seconds=float(plain))
        parts = _PART.findall(plain)
        if parts and not _PART.sub("", plain).strip():
            return timedelta(seconds=sum(float(number) * _UNITS[unit.lower()] for number, unit in parts))
    except OverflowError as much:
        raise ValueError(f"{text!r} is too long") from much
    raise ValueError(f"{text!r} is not a duration; write seconds, or 90s, 5m, 1h30m, 2d, 1w")


def read_instant(text: str, at: datetime) -> datetime:
    """Parse a time relative to the local time `at`. Raises ValueError."""
    plain = text.strip()
    if plain.lower() == "now":
        return at.replace(microsecond=0)
    if plain[:1] in ("+", "-"):
        ahead = read_duration(plain[1:])
        return at.replace(microsecond=0) + (ahead if plain[0] == "+" else -ahead)
    if plain and (on_day := _ON_DAY.fullmatch(plain)):
        day, clock = (on_day[1] or "today").lower(), on_day[2] or "00:00"
        at_time = time.fromisoformat(clock.zfill(len(clock) + (clock[1] == ":")))
        return _local(datetime.combine(at.date() + timedelta(days=_DAYS[day]), at_time))
    found = datetime.fromisoformat(plain)
    return found if found.tzinfo else _local(found)


def _local(naive: datetime) -> datetime:
    return naive.astimezone()


def whole(at: datetime | None) -> str:
    """Format as local time with its distance from now: `2030-01-31 09:00:00+01:00 (in 3 min)`."""
    return "-" if at is None else f"{exact(at)} ({relative(at)})"


def exact(at: datetime) -> str:
    return at.astimezone().isoformat(" ", "milliseconds" if at.microsecond >= 1000 else "seconds")


def brief(at: datetime | None) -> str:
    """Format as short local time: `09:00:00 in 3 min` today, `Jan 31 09:00 in 5 days` on other days."""
    if at is None:
        return "-"
    local, today = at.astimezone(), now().astimezone()
    if local.date() == today.date():
        shown = f"{local:%H:%M:%S}"
    elif local.year == today.year:
        shown = f"{local:%b %d %H:%M}"
    else:
        shown = f"{local:%Y-%m-%d %H:%M}"
    return f"{shown} {relative(at)}"


def relative(at: datetime) -> str:
    seconds = (at - now()).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {length(seconds)}" if seconds > 0 else f"{length(-seconds)} ago"


def length(seconds: float) -> str:
    """Format a duration in its largest sensible unit: `340 ms`, `12 s`, `3 min`, `5 h`, `9 days`."""
    for below, unit, size in _STEPS:
        if seconds < below:
            return f"{_rounded(seconds / size)} {unit}"
    months = seconds / _MONTH
    return f"{months:.0f} months" if months < 24 else f"{seconds / _YEAR:.0f} years"


def _rounded(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 3 else f"{value:.0f}"


def printable(text: str) -> str:
    """Replace control characters, so that foreign text cannot move the cursor or change colours."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)
