"""Job specs from keyword arguments."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, get_type_hints

import msgspec

from noonday.model.errors import Flaw, InvalidInput
from noonday.model.job import JOB_BOUNDS, JobSpec, JobType, bounds_text, wire_name
from noonday.model.job_fields import Duration, EnqueueFields
from noonday.model.retry import RetryPolicy
from noonday.sdk.conversion import convert, require_zone, unknown_field
from noonday.sdk.payload import to_builtins


class EnqueueArguments(EnqueueFields, total=False):
    """The keyword arguments of `app.enqueue`: those of `spec_for`, and a connection with the caller's transaction."""

    connection: Any


TIMINGS = ("at", "delay", "cron", "every", "timezone")
_SHORT_NAMES = {"retry": "retry_policy", "timeout": "timeout_sec"}
"""Fields of `JobSpec` that have a shorter name in decorators and in `enqueue`."""


_TYPES = get_type_hints(JobSpec, include_extras=True)


def spec_of(**fields: Any) -> JobSpec:
    """Return a job spec from the fields of `JobSpec` by their Python names, with Python or JSON values.

    Raises InvalidInput with every flaw. `model.job.check` validates the combination of the values.
    """
    missing = [Flaw(f"/{name}", f"{name} is required") for name in ("type", "target") if name not in fields]
    if missing:
        raise InvalidInput(f"a job needs {' and '.join(flaw.pointer[1:] for flaw in missing)}", missing)
    return JobSpec(**_converted(fields, _TYPES))


def patch_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch of fields of `JobSpec` by their Python names. Raises InvalidInput for unknown names."""
    if flaws := [unknown_field(name, set(_TYPES)) for name in fields if name not in _TYPES]:
        raise InvalidInput("; ".join(flaw.detail for flaw in flaws), flaws)
    seconds = {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in fields.items()}
    return {wire_name(name): to_builtins(value, f"/{name}") for name, value in seconds.items()}


def with_fields(
    spec: JobSpec, fields: Mapping[str, Any], allowed: Iterable[str], arguments: Iterable[str] = ()
) -> JobSpec:
    """Return the spec with these fields set. Raises InvalidInput with every flaw, such as a field not in `allowed`.

    `arguments` are other names that the caller takes; a misspelt one is suggested.
    """
    return msgspec.structs.replace(spec, **_converted(fields, allowed, arguments)) if fields else spec


def timing(
    *,
    at: datetime | None = None,
    delay: Duration | None = None,
    cron: str | None = None,
    every: Duration | None = None,
    timezone: str | None = None,
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
        return {"type": JobType.DELAYED, "delay_sec": _within("delay", seconds_of(delay, "/delay"), "delay_sec")}
    if cron is not None:
        if not isinstance(cron, str):
            raise InvalidInput.of("/cron", "cron must be an expression such as '0 3 * * *'", repr(cron))
        return {"type": JobType.CRON, "schedule": cron, "timezone": timezone}
    if every is not None:
        return {"type": JobType.INTERVAL, "every_sec": _within("every", seconds_of(every, "/every"), "every_sec")}
    if isinstance(at, datetime):
        require_zone("at", at)
    elif at is not None:
        raise InvalidInput.of("/at", f"at must be a datetime with a time zone, not {at!r}", repr(at))
    return {"type": JobType.ONE_TIME, "run_at": at}


def seconds_of(value: Duration, pointer: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput.of(pointer, f"{pointer[1:]} must be seconds or a timedelta, not {value!r}", repr(value))
    return float(value)


def retry_policy_of(value: RetryPolicy | Mapping[str, Any]) -> RetryPolicy:
    """Return a retry policy from its fields: `{"max_attempts": 3}`."""
    if isinstance(value, RetryPolicy):
        return value
    policy: RetryPolicy = convert("retry", value, RetryPolicy)
    return policy


def _within(name: str, value: float, field: str) -> float:
    """Return the value of an argument. Raises InvalidInput if it is out of the bounds of its field of a job."""
    low, high = JOB_BOUNDS[field]
    if not low <= value <= high:
        raise InvalidInput.of(f"/{name}", f"{name} {bounds_text(field)}, not {value:g}", value)
    return value


def _converted(fields: Mapping[str, Any], allowed: Iterable[str], arguments: Iterable[str] = ()) -> dict[str, Any]:
    names = set(allowed)
    values, flaws = {}, []
    for name, value in fields.items():
        if name not in names:
            flaws.append(unknown_field(name, names.union(arguments)))
            continue
        try:
            values[_SHORT_NAMES.get(name, name)] = _convert(name, value)
        except InvalidInput as bad:
            # A message of one flaw names the value, too.
            flaws += [msgspec.structs.replace(flaw, detail=bad.detail) for flaw in bad.flaws]
    if flaws:
        raise InvalidInput("; ".join(flaw.detail for flaw in flaws), flaws)
    return values


def _convert(name: str, value: Any) -> Any:
    field = _SHORT_NAMES.get(name, name)
    if field.endswith("_sec") and isinstance(value, timedelta):
        value = value.total_seconds()
    converted = convert(name, value, _TYPES[field])
    return _within(name, converted, field) if field in JOB_BOUNDS and converted is not None else converted
