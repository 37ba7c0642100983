"""Flags for every field of a task."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from noonday.cli.choices import choice_option
from noonday.cli.instants import duration, durations, is_naive, moment, now, read_duration, read_instant, understood
from noonday.cli.job_flags import read_json
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import Flaw, InvalidInput
from noonday.model.retry import Backoff
from noonday.model.tasks.wire import GONE_STATUS, Method, TaskPatch, TaskSpec, TaskType, TaskView
from noonday.model.zones import zone

F = TypeVar("F", bound=Callable[..., Any])
_read_spec = BodyDecoder(TaskSpec)
_read_patch = BodyDecoder(TaskPatch)

FLAGS = {
    "/name": "--name",
    "/payload/webhook_url": "URL",
    "/payload/method": "--method",
    "/payload/headers": "--header",
    "/payload/body": "--body",
    "/scheduled_at": "--at",
    "/cron_expression": "--cron",
    "/interval": "--interval",
    "/timezone": "--timezone",
    "/end_date": "--until",
    "/retry/max_attempts": "--attempts",
    "/retry/backoff": "--backoff",
    "/retry/initial_delay_ms": "--initial-delay",
    "/retry/delays_ms": "--delays",
    "/retry/statuses": "--retry-status",
    "/timeout_seconds": "--timeout",
    "/ordered": "--ordered",
    "/ordering_key": "--ordering-key",
}
"""Flag of each field of a task, by JSON pointer."""


def call_options(command: F) -> F:
    """Add all flags of a task, in the order of the help."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def spec_of(url: str, flags: Mapping[str, Any]) -> TaskSpec:
    """Return a new task; without a schedule it runs once, now. Raises InvalidInput with every flaw, as the server does."""
    _refuse_without_value(flags["header"])
    timing = _timing_of(flags)
    is_recurring = not timing.keys().isdisjoint(("cron_expression", "interval"))
    if not is_recurring:
        if flags["until"] is not None:
            raise click.UsageError("--until requires --cron, --every or --interval")
        timing.setdefault("scheduled_at", now().isoformat())
    members = {
        "type": TaskType.RECURRING if is_recurring else TaskType.ONE_TIME,
        "payload": {"webhook_url": url, **_call_of(flags), "headers": _merged({}, flags["header"])},
        "retry": _retry_of(flags),
        **timing,
        **_rest_of(flags),
    }
    spec: TaskSpec = _read_spec.decode(msgspec.json.encode(members))
    return spec


def patch_of(task: TaskView, url: str | None, flags: Mapping[str, Any]) -> TaskPatch:
    """Return the changes to a task. Fields of its call and retry policy without a flag keep their values."""
    members = {**_timing_of(flags), **_rest_of(flags)}
    if flags["ordering_key"] == "":
        members["ordering_key"] = None
    call = _call_of(flags) | ({"webhook_url": url} if url else {})
    if call or flags["header"]:
        present = task.payload or {}
        headers = _merged(present.get("headers") or {}, flags["header"])
        members["payload"] = {**present, **call, "headers": headers}
    if retry := _retry_of(flags):
        members["retry"] = _with_kept(retry, msgspec.to_builtins(task.retry))
    if not members:
        raise click.UsageError("nothing to change: pass a URL or at least one flag")
    patch: TaskPatch = _read_patch.decode(msgspec.json.encode(members))
    return patch


def in_flags(refused: InvalidInput, flags: Mapping[str, Any]) -> InvalidInput:
    """Return the same error, naming the given flags instead of JSON fields."""
    names = {
        **FLAGS,
        **({"/scheduled_at": "--in"} if flags["in_"] is not None else {}),
        **({"/interval": "--every"} if flags["every"] is not None else {}),
    }
    words = {place.rpartition("/")[2]: flag for place, flag in names.items() if "_" in place}
    any_word = re.compile(rf"\b({'|'.join(words)})\b")

    def plainly(text: str) -> str:
        return any_word.sub(lambda word: words[word[0]], text)

    flaws = [_in_flags(flaw, names, plainly) for flaw in refused.flaws]
    return InvalidInput(plainly(refused.detail), flaws, **refused.context)


def _in_flags(flaw: Flaw, names: Mapping[str, str], plainly: Callable[[str], str]) -> Flaw:
    place = next((each for each in names if f"{flaw.pointer}/".startswith(f"{each}/")), None)
    if place is None:
        return msgspec.structs.replace(flaw, detail=plainly(flaw.detail))
    within = flaw.pointer[len(place) + 1 :].replace("~1", "/").replace("~0", "~")
    flag = f"{names[place]} {within}" if within and place == "/payload/headers" else names[place]
    return msgspec.structs.replace(flaw, pointer=flag, detail=plainly(flaw.detail))


def _timing_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    given = [name for name in ("at", "in_", "cron", "every", "interval") if flags[name] is not None]
    if len(given) > 1:
        listed = " and ".join(f"--{name.rstrip('_')}" for name in given)
        raise click.UsageError(f"{listed} are mutually exclusive: use one")
    every = flags["every"]
    timing = {
        "scheduled_at": _instant_of(flags["at"], flags["timezone"], "--at"),
        "cron_expression": flags["cron"],
        "interval": flags["interval"] if every is None else f"every {every}",
        "timezone": flags["timezone"],
        "end_date": _instant_of(flags["until"], flags["timezone"], "--until"),
    }
    if flags["in_"] is not None:
        timing["scheduled_at"] = (now() + flags["in_"]).isoformat()
    return _given(timing)


def _instant_of(text: str | None, timezone: str | None, flag: str) -> str | None:
    """Format an instant. Without an offset it is in the task's time zone, or else in the local one."""
    if text is None:
        return None
    if timezone is not None and is_naive(text):
        # The server places it into the zone, with its own rules for the hours that the clocks skip or repeat.
        return read_instant(text, now().astimezone(zone(timezone))).replace(tzinfo=None).isoformat()
    return understood(text, None, flag).isoformat()


def _call_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    return _given({"method": flags["method"], "body": flags["body"]})


def _rest_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    timeout = flags["timeout"]
    seconds = None if timeout is None else timeout.total_seconds()
    fields = {"name": flags["name"], "timeout_seconds": seconds, "ordered": flags["ordered"]}
    return _given({**fields, "ordering_key": flags["ordering_key"]})


def _retry_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    first, delays = flags["initial_delay"], flags["delays"]
    return _given(
        {
            "max_attempts": flags["attempts"],
            "backoff": flags["backoff"],
            "initial_delay_ms": None if first is None else _ms(first),
            "delays_ms": None if delays is None else [_ms(each) for each in delays],
            "statuses": _statuses_of(flags["retry_status"]),
        }
    )


def _statuses_of(given: Sequence[tuple[int, ...]]) -> list[int] | None:
    """Return all given statuses, None if the flag is absent, an empty list for `none` alone."""
    return sorted({status for each in given for status in each}) if given else None


def _with_kept(retry: dict[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Merge new retry fields into the present policy. New delays replace the present delays and attempt count."""
    if retry.keys() <= {"max_attempts", "statuses"}:
        return {**present, **retry}
    if retry.keys() <= {"max_attempts", "statuses", "initial_delay_ms"} and present["backoff"] != Backoff.LIST:
        return {**present, **retry}
    return {**({"statuses": present["statuses"]} if "statuses" in present else {}), **retry}


def _merged(present: Mapping[str, str], given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Replace headers by name, ignoring case. A header without a value is removed."""
    replaced = {name.lower() for name, _ in given}
    kept = {name: value for name, value in present.items() if name.lower() not in replaced}
    return {**kept, **{name: value for name, value in given if value}}


def _refuse_without_value(headers: Sequence[tuple[str, str]]) -> None:
    for name, value in headers:
        if not value:
            raise click.BadParameter(f"{name!r} has no value; write 'NAME: VALUE'", param_hint="--header")


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _ms(wait: timedelta) -> int:
    return round(wait.total_seconds() * 1000)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.BadParameter(f"{text!r} is not a header; write 'NAME: VALUE', such as 'X-Team: billing'")
    return name.strip(), value.strip()


def _body(text: str) -> Any:
    # Raw, because null is a valid body and None means that the flag is absent.
    return msgspec.Raw(msgspec.json.encode(read_json(text, "--body")))


def _every(text: str) -> str:
    """Return the interval as words without `every`: `15m` and `every 15 minutes` become `15 minutes`."""
    try:
        seconds = read_duration(text).total_seconds()
    except ValueError:
        return text.strip().removeprefix("every ")
    units = (("days", 86_400), ("hours", 3600), ("minutes", 60))
    unit, size = next((each for each in units if seconds and seconds % each[1] == 0), ("seconds", 1))
    number = f"{seconds / size:.15g}"
    return f"{number} {unit.removesuffix('s') if number == '1' else unit}"


def _status(text: str) -> tuple[int, ...]:
    """Option type of HTTP statuses: one status, a class such as `5xx`, or `none`."""
    word = text.strip().lower()
    if word == "none":
        return ()
    if re.fullmatch(r"[345]xx", word):
        first = int(word[0]) * 100
        return tuple(status for status in range(first, first + 100) if status != GONE_STATUS)
    if not (word.isascii() and word.isdigit() and len(word) == 3):
        raise click.BadParameter(f"{text!r} is not a status; write 409, 5xx or none")
    return (int(word),)


_OPTIONS = (
    click.option("--at", type=moment, metavar="INSTANT", help="Call once, at this time. [default: now]"),
    click.option("--in", "in_", type=duration, metavar="DURATION", help="Call once, after this duration."),
    click.option("--cron", metavar="EXPR", help="Call on a cron schedule."),
    click.option("--every", type=_every, metavar="N UNITS", help="Call repeatedly: '15 minutes', or 15m."),
    click.option("--interval", metavar="WORDS", help="Call repeatedly: 'daily at 08:00', 'weekly on mon 09:00'."),
    click.option("--timezone", "--tz", metavar="ZONE", help="Time zone of the schedule, such as Europe/Berlin."),
    click.option("--until", type=moment, metavar="INSTANT", help="Make no call after this time."),
    choice_option("--method", Method, help="HTTP method. [default: POST]"),
    click.option("--header", type=_header, multiple=True, metavar="'NAME: VALUE'", help="Request header; repeatable."),
    click.option("--body", type=_body, metavar="JSON|@FILE|-", help="Request body; null sends none."),
    click.option("--name", help="Name of the task; commands accept it instead of the id."),
    click.option("--attempts", type=int, metavar="N", help="Maximum attempts per call. [default: 5]"),
    choice_option(
        "--backoff",
        Backoff,
        help="How the delay between attempts grows. LIST without --delays spans three days. [default: EXPONENTIAL]",
    ),
    click.option("--initial-delay", type=duration, metavar="DURATION", help="The first delay. [default: 30s]"),
    click.option("--delays", type=durations, metavar="A,B,..", help="LIST: the delays."),
    click.option(
        "--retry-status",
        type=_status,
        multiple=True,
        metavar="STATUS|5xx|none",
        help="Retry only after these HTTP statuses; repeatable. [default: 408, 425, 429, 5xx]",
    ),
    click.option("--timeout", type=duration, metavar="DURATION", help="Maximum duration of a call. [default: 30s]"),
    click.option(
        "--ordered/--not-ordered",
        default=None,
        help="Make the calls one at a time, in order, each after all attempts of the previous call.",
    ),
    click.option(
        "--ordering-key",
        metavar="KEY",
        help="Deliver tasks with the same KEY one at a time, in order. '' removes the key.",
    ),
)
