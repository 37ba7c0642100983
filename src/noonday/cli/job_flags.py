"""Flags for every field of a job."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from noonday.cli.choices import choice_option
from noonday.cli.flag_errors import at_flags
from noonday.cli.instants import duration, durations, is_naive, moment, understood
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import InvalidInput, nearest
from noonday.model.job import (
    FIELDS_OF_TYPE,
    TIMING_FIELDS,
    CatchUpPolicy,
    JobSpec,
    JobType,
    Overlap,
    Priority,
    wire_name,
)
from noonday.model.merge_patch import patch_between
from noonday.model.offset_changes import Gap, Repeat
from noonday.model.pool import BUILT_IN_POOLS
from noonday.model.retry import Backoff
from noonday.model.view import PoolView

_JSON_BEGINS = ("{", "[", '"')
F = TypeVar("F", bound=Callable[..., Any])
_read_spec = BodyDecoder(JobSpec)

_BACKOFFS_OF_FLAG = {
    "initial_delay": (Backoff.FIXED, Backoff.EXPONENTIAL),
    "multiplier": (Backoff.EXPONENTIAL,),
    "max_delay": (Backoff.EXPONENTIAL,),
    "retry_delays": (Backoff.LIST,),
}
"""Backoffs that a flag of the retry policy applies to."""
TIMINGS = {"at": "ONE_TIME", "delay": "DELAYED", "cron": "CRON", "every": "INTERVAL"}

PLACES = {
    "name": "name",
    "pool": "target.pool",
    "handler": "target.handler",
    "payload": "payload",
    "at": "runAt",
    "delay": "delaySec",
    "cron": "schedule",
    "every": "everySec",
    "phase": "phaseSec",
    "tz": "timezone",
    "gap": "dst.gap",
    "repeat": "dst.repeat",
    "start": "startAt",
    "end": "endAt",
    "max_runs": "maxRuns",
    "overlap": "overlap",
    "catch_up": "catchUp.policy",
    "window": "catchUp.windowSec",
    "while_paused": "catchUp.whilePaused",
    "start_deadline": "startDeadlineSec",
    "spread": "spreadSec",
    "unique_key": "uniqueKey",
    "concurrency": "concurrency",
    "priority": "priority",
    "timeout": "timeoutSec",
    "heartbeat_timeout": "heartbeatTimeoutSec",
    "tag": "tags",
    "max_attempts": "retryPolicy.maxAttempts",
    "backoff": "retryPolicy.backoff",
    "retry_delays": "retryPolicy.delaysMs",
    "initial_delay": "retryPolicy.initialDelayMs",
    "multiplier": "retryPolicy.multiplier",
    "max_delay": "retryPolicy.maxDelayMs",
}
"""Path of each flag's value in the JSON of a job."""


def job_options(command: F) -> F:
    """Add all flags of a job, in the order of the help."""
    return _with(command, (*_OPTIONS, *_RETRY_OPTIONS))


def retry_options(command: F) -> F:
    """Add the flags of the retry policy."""
    return _with(command, _RETRY_OPTIONS)


def _with(command: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def members_of(flags: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Return a job in the format of the API, from a file and from the flags, which override the file."""
    job = _read_file(file) if file else {}
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    timing = _timing_of(given)
    if timing or "type" not in job:
        job["type"] = TIMINGS[timing or "at"]
    _place_times(given, job["type"])
    put_flags(job, given)
    refuse_idle_retry_flags(given, job.get("retryPolicy"))
    return job


def patch_of(flags: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    """Return the merge patch that sets the given flags. The payload becomes the one of the flag; `payload` is the present one.

    Another kind of timing removes what does not go with it.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    timing = _timing_of(given)
    patch: dict[str, Any] = {}
    if timing:
        foreign = TIMING_FIELDS - FIELDS_OF_TYPE[JobType(TIMINGS[timing])]
        patch = {"type": TIMINGS[timing]} | dict.fromkeys(map(wire_name, sorted(foreign)))
    put_flags(patch, given)
    if "concurrency" in patch:
        patch["concurrency"] = {"ordered": False} | patch["concurrency"]
    if "payload" in patch:
        try:
            patch["payload"] = patch_between(payload, msgspec.json.decode(patch["payload"]))
        except ValueError as bad:
            raise click.BadParameter(f"{bad}: replace the job with PUT instead", param_hint="--payload") from bad
    return patch


def _timing_of(given: Mapping[str, Any]) -> str | None:
    """Return the flag among the given ones that says when a job runs. Raises UsageError if there are several."""
    timing = [name for name in TIMINGS if name in given]
    if len(timing) > 1:
        listed = " and ".join(f"--{name}" for name in timing)
        raise click.UsageError(f"{listed} are mutually exclusive: use one")
    return timing[0] if timing else None


def refuse_idle_retry_flags(given: Mapping[str, Any], policy: Any) -> None:
    """Raise UsageError for a flag of the retry policy that has no effect on its backoff."""
    backoff = (policy.get("backoff") if isinstance(policy, dict) else None) or Backoff.LIST
    for name, kinds in _BACKOFFS_OF_FLAG.items():
        if given.get(name) is not None and backoff not in kinds:
            raise click.UsageError(
                f"--{name.replace('_', '-')} goes with --backoff {' or '.join(kinds)}; the backoff is {backoff}"
            )


def _place_times(given: dict[str, Any], kind: str) -> None:
    """Put the times without an offset into the zone of --tz. A one-time job keeps no zone, because its time has an offset."""
    zone = given.get("tz")
    naive = [name for name in ("at", "start", "end") if name in given and is_naive(given[name])]
    if zone is not None and kind != "CRON" and "at" not in naive:
        raise click.UsageError("--tz goes with --cron, or with --at without an offset, such as --at '2030-01-31 09:00'")
    for name in ("at", "start", "end"):
        if name in given:
            given[name] = understood(given[name], zone, f"--{name}")
    if kind != "CRON":
        given.pop("tz", None)


def put_flags(members: dict[str, Any], flags: Mapping[str, Any]) -> None:
    """Set the value of each given flag at its path."""
    for name, value in flags.items():
        if value is not None:
            _put(members, PLACES[name].split("."), _wire(PLACES[name], value))


def spec_of(job: Mapping[str, Any]) -> JobSpec:
    """Decode a job. Raises InvalidInput with every flaw, as the server does."""
    spec: JobSpec = _read_spec.decode(msgspec.json.encode(job))
    return spec


def in_flags(refused: InvalidInput, file: Path | None = None) -> InvalidInput:
    """Return the same error with flags instead of paths in the job; with a file, next to the paths."""
    flags = {"/" + place.replace(".", "/"): f"--{name.replace('_', '-')}" for name, place in PLACES.items()}

    def flag_of(pointer: str) -> str:
        flag = flags.get(pointer)
        if flag is None:
            return pointer
        return f"{pointer} ({flag})" if file else flag

    return at_flags(refused, flag_of)


def pool_of(handler: str, pools: list[PoolView]) -> str:
    """Return the only pool that has the handler. Raises InvalidInput if there is none or several."""
    having = [pool.name for pool in pools if any(known.name == handler for known in pool.handlers)]
    if len(having) == 1:
        return having[0]
    if having:
        raise InvalidInput.of(
            "/target/pool", f"several pools have handler {handler}: choose one with --pool", allowed=having
        )
    known = sorted({known.name for pool in pools if pool.name not in BUILT_IN_POOLS for known in pool.handlers})
    raise InvalidInput.of(
        "/target/handler",
        f"no worker has handler {handler}; if its worker is not running yet, name its pool with --pool",
        handler,
        allowed=known,
        nearest=nearest(handler, known),
    )


def read_json(text: str, name: str) -> Any:
    """Decode JSON from the text, from @FILE, or from standard input if the text is `-`."""
    raw: bytes | str = text
    try:
        if text == "-":
            raw = sys.stdin.buffer.read()
        elif text.startswith("@"):
            raw = Path(text[1:]).read_bytes()
        return msgspec.json.decode(raw)
    except OSError as error:
        raise click.BadParameter(f"cannot read {text[1:]}: {error.strerror}", param_hint=name) from error
    except (msgspec.DecodeError, UnicodeError) as bad:
        if not (text.startswith("@") or text == "-") and text[:1] not in _JSON_BEGINS:
            quoted = msgspec.json.encode(text).decode().replace("'", "'\\''")
            raise click.BadParameter(f"a text needs quotes: {name} '{quoted}'", param_hint=name) from bad
        source = "" if raw is text else "standard input is " if text == "-" else f"{text[1:]} is "
        reason = str(bad).removeprefix("JSON is malformed: ")
        raise click.BadParameter(f"{source}not JSON: {reason}", param_hint=name) from bad


def _read_file(file: Path) -> dict[str, Any]:
    job = read_json("-" if str(file) == "-" else f"@{file}", "--file")
    if not isinstance(job, dict):
        raise click.BadParameter("the file must contain one job, a JSON object", param_hint="--file")
    return job


def _payload(text: str) -> Any:
    # Raw, because null is a valid payload and None means that the flag is absent.
    return msgspec.Raw(msgspec.json.encode(read_json(text, "--payload")))


def _key_and_limit(text: str) -> dict[str, Any]:
    key, _, limit = text.rpartition("=")
    if key and limit == "ordered":
        return {"key": key, "limit": 1, "ordered": True}
    if not key or not limit.isdigit():
        raise click.BadParameter(f"{text!r} is not KEY=LIMIT, such as reports=2, or KEY=ordered")
    return {"key": key, "limit": int(limit)}


def _put(job: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        job = job.setdefault(name, {})
    job[path[-1]] = value


def _wire(place: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _span(value, in_ms=place.endswith("Ms"))
    if place == "retryPolicy.delaysMs":
        return [_span(one, in_ms=True) for one in value]
    return value


def _span(value: timedelta, *, in_ms: bool) -> float:
    seconds = value.total_seconds()
    if in_ms:
        return round(seconds * 1000)
    return int(seconds) if seconds.is_integer() else seconds


def payload_option(help: str) -> Callable[[F], F]:
    """Add --payload. Its value is JSON that is not decoded, or None without the flag."""
    return click.option("--payload", type=_payload, metavar="JSON|@FILE|-", help=help)


_OPTIONS = (
    click.option("--handler", help="Handler that runs the job, such as demo.echo."),
    click.option("--pool", help="Pool that runs the job; optional if only one pool has the handler."),
    payload_option("Argument of the handler."),
    click.option("--name", help="Name of the job; commands accept it instead of the id."),
    click.option("--at", type=moment, help="Run once, at this time. [default: now]"),
    click.option("--delay", type=duration, help="Run once, after this duration."),
    click.option("--cron", metavar="EXPR", help="Run on a cron schedule of 5 fields, or 6 with seconds first."),
    click.option("--every", type=duration, help="Run repeatedly, at this interval."),
    click.option("--tz", metavar="ZONE", help="Time zone of --cron, and of times without an offset. [default: UTC]"),
    choice_option("--gap", Gap, help="With --cron: policy for a local time that the clocks skip. [default: SHIFT]"),
    choice_option("--repeat", Repeat, help="With --cron: policy for a local time that occurs twice. [default: FIRST]"),
    click.option("--phase", type=duration, help="With --every: offset from multiples of the interval since 1970."),
    click.option("--start", type=moment, help="Do not fire before this time."),
    click.option("--end", type=moment, help="Do not fire after this time."),
    click.option("--max-runs", type=int, help="Maximum number of executions."),
    choice_option("--overlap", Overlap, help="Policy if the previous execution is still running. [default: ALLOW]"),
    choice_option("--catch-up", CatchUpPolicy, help="Which missed occurrences to run. [default: LATEST]"),
    click.option("--window", type=duration, help="Maximum age of missed occurrences to run. [default: 1d]"),
    click.option(
        "--while-paused/--not-while-paused", default=None, help="Also catch up on occurrences missed during a pause."
    ),
    click.option("--start-deadline", type=duration, help="Start no later than this duration after the due time."),
    click.option("--spread", type=duration, help="Delay each start by up to this duration, constant per job."),
    click.option("--unique-key", metavar="KEY", help="Replace the existing job with this key."),
    click.option(
        "--concurrency",
        type=_key_and_limit,
        metavar="KEY=LIMIT",
        help="Run at most LIMIT executions with this KEY at once; KEY=ordered runs them one at a time, in due order.",
    ),
    choice_option("--priority", Priority, help="Priority within the tenant. [default: NORMAL]"),
    click.option("--timeout", type=duration, help="Maximum duration of an attempt. [default: 1h]"),
    click.option("--heartbeat-timeout", type=duration, help="Maximum time between heartbeats of the handler."),
    click.option("--tag", multiple=True, help="Tag for searching; repeatable."),
)
_RETRY_OPTIONS = (
    click.option("--max-attempts", type=int, help="Maximum number of attempts. [default: 5]"),
    choice_option("--backoff", Backoff, help="How the delay between attempts grows. [default: LIST]"),
    click.option("--retry-delays", type=durations, metavar="A,B,..", help="LIST: the delays. [default: 30s,2m,10m,1h]"),
    click.option("--initial-delay", type=duration, help="EXPONENTIAL, FIXED: the first delay. [default: 30s]"),
    click.option("--multiplier", type=float, help="EXPONENTIAL: growth factor of the delay. [default: 2]"),
    click.option("--max-delay", type=duration, help="EXPONENTIAL: the longest delay. [default: 1h]"),
)
