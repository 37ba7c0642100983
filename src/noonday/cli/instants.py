"""Parsing and formatting of times and durations."""

import os
import re
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import click

from noonday.model.zones import is_zone, zone
from noonday.runtime.clock import SystemClock

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", re.IGNORECASE)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY = re.compile(r"(?:(yesterday|today|tomorrow)(?:\s+at)?\s+)?(\d{1,2}:\d{2}(?::\d{2})?)", re.IGNORECASE)
TYPED = "noonday.times"
"""Key of the times that were typed, by the milliseconds that they mean, in the context of a command."""
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STEPS = ((1, "ms", 0.001), (60, "s", 1), (3600, "min", 60), (86_400 * 2, "h", 3600), (86_400 * 60, "days", 86_400))
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


class Instant(click.ParamType[datetime]):
    """Option type of a time: ISO 8601, in local time if it has no offset; or 09:00, tomorrow, yesterday 02:00, +10m, -2h.

    The command prints how it understands a time without an offset, and an error about the time repeats it as it was typed.
    """

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        return understood(value, None, param.opts[0] if param else "")


instant = Instant()


def moment(text: str) -> str:
    """Option type of a time that is read later, with `understood`, because its time zone is another option."""
    _read(text, now().astimezone())
    return text.strip()


moment.__name__ = "instant"


def understood(text: str, zone_name: str | None, flag: str) -> datetime:
    """Return the time that a text means in a zone, by default in local time. Raises BadParameter.

    If the text has no offset, prints what it means.
    """
    here = now().astimezone(zone(zone_name) if zone_name else None)
    at = _read(text, here)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(TYPED, {})[round(at.timestamp() * 1000)] = text
        if flag and is_naive(text):
            click.echo(f"{flag}: {text} is {exact(at)} {zone_name or local_zone()}", err=True)
    return at


def is_naive(text: str) -> bool:
    """Return whether a time has no offset, so that it depends on a time zone."""
    plain = text.strip()
    if plain.lower() == "now" or plain[:1] in ("+", "-"):
        return False
    try:
        return datetime.fromisoformat(plain).tzinfo is None
    except ValueError:
        return True


def typed_as(value: object) -> str | None:
    """Return the time that was typed for a value of an error, and how it was understood; None for any other value."""
    context = click.get_current_context(silent=True)
    at_ms = _ms_of(value)
    text = context.meta.get(TYPED, {}).get(at_ms) if context and at_ms is not None else None
    if text is None or at_ms is None:
        return None
    return f"{text}, which is {exact(datetime.fromtimestamp(at_ms / 1000, UTC))} {local_zone()}"


def _ms_of(value: object) -> int | None:
    if isinstance(value, int):
        return value
    try:
        return round(datetime.fromisoformat(str(value)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _read(text: str, here: datetime) -> datetime:
    try:
        return read_instant(text, here)
    except (ValueError, OverflowError) as bad:
        raise click.BadParameter(
            f"{text!r} is not a time; write 2030-01-31T09:00:00Z, local time such as '2030-01-31 09:00', 09:00, "
            "tomorrow or 'yesterday 02:00', or now, +10m, -2h"
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
    if found := _DAY.fullmatch(plain):
        day, clock = found[1], found[2]
        date = at.date() + timedelta(days=_DAYS[day.lower()] if day else 0)
        return _in_zone_of(at, datetime.combine(date, time.fromisoformat(clock.zfill(5 if len(clock) < 6 else 8))))
    if plain.lower() in _DAYS:
        return _in_zone_of(at, datetime.combine(at.date() + timedelta(days=_DAYS[plain.lower()]), time()))
    given = datetime.fromisoformat(plain)
    return given if given.tzinfo else _in_zone_of(at, given)


def _in_zone_of(at: datetime, naive: datetime) -> datetime:
    """Place a time into the zone of another. A local time that the clocks skip becomes the one after the gap."""
    if isinstance(at.tzinfo, ZoneInfo):
        return naive.replace(tzinfo=at.tzinfo).astimezone(UTC).astimezone(at.tzinfo)
    return naive.astimezone()


def local_zone() -> str:
    """Return the name of the zone of this machine, such as Europe/Berlin; else its abbreviation."""
    for name in (os.environ.get("TZ", ""), os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]):
        if name and not name.startswith("/") and is_zone(name.lstrip(":")):
            return name.lstrip(":")
    return now().astimezone().tzname() or "local time"


def whole(at: datetime | None, zone_name: str | None = None) -> str:
    """Format with the distance from now, in a zone or in local time: `2030-01-31 09:00:00+01:00 Europe/Berlin (in 3 min)`.

    If the zone's time is not the local time, that follows: `(in 3 min; 08:00:00+00:00 here)`.
    """
    if at is None:
        return "-"
    there = in_zone(at, zone_name)
    name = f" {zone_name}" if zone_name else ""
    here = (
        ""
        if there.utcoffset() == at.astimezone().utcoffset()
        else f"; {at.astimezone().isoformat(' ', 'seconds')} here"
    )
    return f"{_exact(there)}{name} ({relative(at)}{here})"


def exact(at: datetime) -> str:
    return _exact(at if isinstance(at.tzinfo, ZoneInfo) else at.astimezone())


def _exact(at: datetime) -> str:
    return at.isoformat(" ", "milliseconds" if at.microsecond >= 1000 else "seconds")


def in_zone(at: datetime, zone_name: str | None) -> datetime:
    """Return a time in a zone; in local time without a zone, or if this machine does not know the zone."""
    return at.astimezone(zone(zone_name) if zone_name and is_zone(zone_name) else None)


def brief(at: datetime | None, zone_name: str | None = None) -> str:
    """Format as short time in a zone or in local time: `09:00:00 CET in 3 min` today, `Jan 31 09:00 CET in 5 days` else."""
    if at is None:
        return "-"
    local = in_zone(at, zone_name)
    today = now().astimezone(local.tzinfo)
    if local.date() == today.date():
        shown = f"{local:%H:%M:%S}"
    elif local.year == today.year:
        shown = f"{local:%b %d %H:%M}"
    else:
        shown = f"{local:%Y-%m-%d %H:%M}"
    return f"{shown} {zone_name or local.tzname()} {relative(at)}"


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


def single_line(text: str, longest: int) -> str:
    """Return a text on one line, with markup of web pages removed, and at most `longest` characters of it."""
    plain = " ".join(re.sub(r"<[^>]*>?", " ", text).split())
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


def printable(text: str) -> str:
    """Replace control characters, so that foreign text cannot move the cursor or change colours."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)
