"""A job from keyword arguments: the words of the SDK made into the words of the wire."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, get_type_hints

import msgspec

from noonday.model.errors import Flaw, InvalidInput, nearest
from noonday.model.job import CatchUp, Concurrency, Dst, JobSpec, JobType, Overlap, Priority
from noonday.model.retry import RetryPolicy
from noonday.sdk.payload import to_builtins

Duration = float | timedelta
"""Seconds, or a timedelta."""


class DeclaredFields(TypedDict, total=False):
    """What a job declared in code can say besides its name, target, payload and schedule: as in `JobSpec`."""

    dst: Dst
    phase_sec: Duration
    start_at: datetime
    end_at: datetime
    max_runs: int
    overlap: Overlap
    catch_up: CatchUp
    start_deadline_sec: Duration
    spread_sec: Duration
    concurrency: Concurrency
    priority: Priority
    heartbeat_timeout_sec: Duration
    tags: tuple[str, ...]


class JobFields(DeclaredFields, total=False):
    """What an enqueued job can say: the same, its own limits, and the key that makes it the update of another."""

    unique_key: str
    retry_policy: RetryPolicy
    timeout_sec: Duration


_TYPES = get_type_hints(JobSpec, include_extras=True)


def spec_of(**fields: Any) -> JobSpec:
    """A job from the fields of `JobSpec` by their Python names; their values as Python has them or as the wire does.

    Raises InvalidInput with every flaw. Whether the values make sense together is for `model.job.check` to say.
    """
    missing = [Flaw(f"/{name}", f"{name} is missing") for name in ("type", "target") if name not in fields]
    if missing:
        raise InvalidInput(f"a job needs {' and '.join(flaw.pointer[1:] for flaw in missing)}", missing)
    return JobSpec(**_converted(fields, _TYPES))


def with_fields(spec: JobSpec, fields: Mapping[str, Any], allowed: Iterable[str]) -> JobSpec:
    """The job with some more of its fields said. Raises InvalidInput with every flaw; not `allowed` is one."""
    return msgspec.structs.replace(spec, **_converted(fields, allowed)) if fields else spec


def timing(
    *, at: datetime | None, delay: Duration | None, cron: str | None, every: Duration | None, timezone: str | None
) -> dict[str, Any]:
    """When a job runs, as fields of `JobSpec`: at most one of the four; none of them is now."""
    given = {"at": at, "delay": delay, "cron": cron, "every": every}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(f"a job has one timing: {' and '.join(named)} do not go together", allowed=list(given))
    if timezone is not None and cron is None:
        raise InvalidInput.of("/timezone", "timezone goes with cron only: other times name an instant", timezone)
    if delay is not None:
        return {"type": JobType.DELAYED, "delay_sec": seconds_of(delay, "/delay")}
    if cron is not None:
        if not isinstance(cron, str):
            raise InvalidInput.of("/cron", "cron must be an expression such as '0 3 * * *'", repr(cron))
        return {"type": JobType.CRON, "schedule": cron, "timezone": timezone}
    if every is not None:
        return {"type": JobType.INTERVAL, "every_sec": seconds_of(every, "/every")}
    return {"type": JobType.ONE_TIME, "run_at": at}


def seconds_of(value: Duration, pointer: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput.of(pointer, f"{pointer[1:]} must be seconds or a timedelta", repr(value))
    return float(value)


def _converted(fields: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    names = set(allowed)
    values, flaws = {}, []
    for name, value in fields.items():
        if name not in names:
            guess = nearest(name, names)
            detail = f"there is no field {name} here" + (f"; did you mean {guess}?" if guess else "")
            flaws.append(Flaw(f"/{name}", detail, allowed=sorted(names), nearest=guess))
            continue
        try:
            values[name] = _convert(name, value)
        except InvalidInput as bad:
            flaws += bad.flaws
    if flaws:
        raise InvalidInput(flaws[0].detail if len(flaws) == 1 else f"{len(flaws)} values are not valid", flaws)
    return values


def _convert(name: str, value: Any) -> Any:
    if name.endswith("_sec") and isinstance(value, timedelta):
        return value.total_seconds()
    plain = to_builtins(value, f"/{name}")
    try:
        return msgspec.convert(plain, _TYPES[name])
    except msgspec.ValidationError as bad:
        raise InvalidInput.of(f"/{name}", f"{name}: {bad}", plain) from bad
