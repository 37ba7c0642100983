"""Job specs from keyword arguments."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, get_type_hints

import msgspec

from noonday.model.errors import Flaw, InvalidInput, nearest
from noonday.model.job import CatchUp, Concurrency, Dst, JobSpec, JobType, Overlap, Priority
from noonday.model.retry import RetryPolicy
from noonday.sdk.payload import to_builtins

Duration = float | timedelta
"""A duration: seconds or a timedelta."""


class DeclaredFields(TypedDict, total=False):
    """Optional fields of a job declared in code, as in `JobSpec`."""

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
    """Optional fields of an enqueued job: those of a declared job, plus unique key, retry policy and timeout."""

    unique_key: str
    retry_policy: RetryPolicy
    timeout_sec: Duration


_TYPES = get_type_hints(JobSpec, include_extras=True)


def spec_of(**fields: Any) -> JobSpec:
    """Return a job spec from the fields of `JobSpec` by their Python names, with Python or JSON values.

    Raises InvalidInput with every flaw. `model.job.check` validates the combination of the values.
    """
    missing = [Flaw(f"/{name}", f"{name} is required") for name in ("type", "target") if name not in fields]
    if missing:
        raise InvalidInput(f"a job needs {' and '.join(flaw.pointer[1:] for flaw in missing)}", missing)
    return JobSpec(**_converted(fields, _TYPES))


def with_fields(spec: JobSpec, fields: Mapping[str, Any], allowed: Iterable[str]) -> JobSpec:
    """Return the spec with these fields set. Raises InvalidInput with every flaw, such as a field not in `allowed`."""
    return msgspec.structs.replace(spec, **_converted(fields, allowed)) if fields else spec


def timing(
    *, at: datetime | None, delay: Duration | None, cron: str | None, every: Duration | None, timezone: str | None
) -> dict[str, Any]:
    """Return the timing as fields of `JobSpec`. At most one of `at`, `delay`, `cron`, `every` is set; none means now."""
    given = {"at": at, "delay": delay, "cron": cron, "every": every}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(
            f"{' and '.join(named)} cannot be combined; set at most one of {', '.join(given)}", allowed=list(given)
        )
    if timezone is not None and cron is None:
        raise InvalidInput.of("/timezone", "timezone is allowed with cron only", timezone)
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
            detail = f"unknown field {name}" + (f"; did you mean {guess}?" if guess else "")
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
