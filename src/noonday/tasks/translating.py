"""Conversion between tasks and jobs.

Flaws use the field names of tasks. The job's payload stores the fields that a job does not have: under `given`, the interval
phrase and the time zone as the user wrote them; and the retried statuses, which the webhook handler reads.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import fields, replace

from noonday.model.errors import BadKey, Conflict, Flaw, InvalidInput, pointer_to
from noonday.model.job import Concurrency, JobSpec, JobType, Overlap, Target, check
from noonday.model.redaction import REDACTED
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.tasks.wire import (
    DAYS_LONG_MS,
    DEFAULT_ATTEMPTS,
    DEFAULT_TIMEOUT_SEC,
    GONE_STATUS,
    HANDLER,
    MOST_ATTEMPTS,
    POOL,
    TaskPatch,
    TaskPayload,
    TaskRetry,
    TaskSpec,
    TaskType,
)
from noonday.model.zones import zone
from noonday.tasks.phrases import Timing, read_interval
from noonday.webhooks.bounds import DEFAULT_BOUNDS, CallBounds
from noonday.webhooks.headers import POINTER as HEADERS
from noonday.webhooks.headers import flaws_of

STATUSES = "retried_statuses"
"""Payload field of the retried statuses, which the webhook handler reads."""
LEAST_STATUS, LAST_STATUS, MOST_STATUSES = 300, 599, 300


def to_job_spec(spec: TaskSpec, now_ms: int, bounds: CallBounds = DEFAULT_BOUNDS) -> JobSpec:
    """Convert a task created at `now_ms` into a job.

    Raises InvalidInput with every flaw that can be found without the store, located in the task.
    """
    timing, flaws = _timing(spec)
    endpoint, call_flaws = _endpoint_of(spec.payload, bounds)
    flaws += bounds.flaws_of_timeout(spec.timeout_seconds)
    job = _job(spec, timing, endpoint, now_ms)
    flaws += call_flaws
    flaws += [*_flaws_of_type(spec), *_flaws_of_retry(spec.retry), *_flaws_of_zone(spec)]
    pointers = {flaw.pointer for flaw in flaws}
    flaws += [flaw for flaw in _flaws_of_job(job, spec, now_ms) if flaw.pointer not in pointers]
    if flaws:
        raise _refusal(flaws)
    return job


def task_of(job: JobSpec) -> TaskSpec:
    """Convert a job back into its task, with defaults filled in.

    Raises BadKey if the job's payload could not be decrypted, Conflict if the job is not a task.
    """
    call = call_of(job)
    if "unreadable" in call:
        raise BadKey(str(call["unreadable"]))
    try:
        payload = msgspec.convert(call, TaskPayload)
    except msgspec.ValidationError as error:
        raise Conflict("the job was not created as a task: change it with /v1/jobs") from error
    return TaskSpec(payload=payload, name=job.name, **schedule_of(job), **limits_of(job))


def patched(job: JobSpec, patch: TaskPatch, now_ms: int, bounds: CallBounds = DEFAULT_BOUNDS) -> JobSpec:
    """Apply a patch, except its status, to a job whose payload is decrypted. Fields that tasks do not have stay unchanged.

    An unchanged interval keeps its phase. A header whose value is the redaction mark keeps its stored value. Raises the
    errors of `to_job_spec` and `task_of`.
    """
    changes = {name: value for name in _PATCHED if (value := getattr(patch, name)) is not UNSET}
    if not changes:
        return job
    if changes.get("interval") is not None:
        changes.setdefault("cron_expression", None)
    elif changes.get("cron_expression") is not None:
        changes.setdefault("interval", None)
    task = task_of(job)
    if "payload" in changes:
        changes["payload"] = _with_stored_values(changes["payload"], task.payload, bounds)
    changes.setdefault("timeout_seconds", min(task.timeout_seconds, bounds.timeout_sec))
    # A new interval starts 1 ms ago, so that its first fire is one interval from now and not in this very millisecond.
    new = to_job_spec(replace(task, **changes), now_ms - 1, bounds)
    if "interval" not in changes and new.type is JobType.INTERVAL:
        new = replace(new, phase_sec=job.phase_sec)
    fields = {name: getattr(new, name) for name in _TASK_FIELDS}
    if "ordered" in changes and task.ordered != changes["ordered"]:
        fields["overlap"] = new.overlap
    if "ordering_key" in changes and task.ordering_key != changes["ordering_key"]:
        fields["concurrency"] = new.concurrency
    return replace(job, **fields)


def as_task_flaws(bad: InvalidInput, spec: TaskSpec) -> InvalidInput:
    """Convert the flaws of a job into flaws of its task."""
    return _refusal([_as_task_flaw(flaw, spec) for flaw in bad.flaws]) if bad.flaws else bad


_PATCHED = tuple(field.name for field in fields(TaskPatch) if field.name != "status")
_TASK_FIELDS = (
    *("type", "target", "name", "payload", "run_at", "schedule", "timezone", "every_sec", "phase_sec", "end_at"),
    *("retry_policy", "timeout_sec"),
)


def _timing(spec: TaskSpec) -> tuple[Timing, list[Flaw]]:
    if spec.type is TaskType.ONE_TIME:
        return Timing(JobType.ONE_TIME), []
    if spec.interval is None or spec.cron_expression is not None:
        return Timing(JobType.CRON, schedule=spec.cron_expression, timezone=spec.timezone), []
    try:
        return read_interval(spec.interval, spec.timezone), []
    except InvalidInput as bad:
        return Timing(JobType.CRON), list(bad.flaws)


def _job(spec: TaskSpec, timing: Timing, endpoint: str | None, now_ms: int) -> JobSpec:
    recurring = spec.type is TaskType.RECURRING
    return JobSpec(
        type=timing.type,
        target=Target(POOL, HANDLER, endpoint),
        name=spec.name,
        payload=_payload_of(spec),
        run_at=None if recurring else _with_offset(spec.scheduled_at, spec),
        schedule=timing.schedule,
        timezone=timing.timezone,
        every_sec=timing.every_sec,
        phase_sec=timing.phase_sec(now_ms),
        end_at=_with_offset(spec.end_date, spec) if recurring else None,
        retry_policy=_policy_of(spec.retry),
        timeout_sec=spec.timeout_seconds,
        overlap=Overlap.BUFFER_ALL if spec.ordered else Overlap.ALLOW,
        concurrency=None if spec.ordering_key is None else Concurrency(spec.ordering_key, 1, ordered=True),
    )


def _endpoint_of(call: TaskPayload, bounds: CallBounds) -> tuple[str | None, list[Flaw]]:
    """Return the endpoint of a call, or None, and the flaws of its URL and headers."""
    flaws = flaws_of(call.headers)
    flaws += [_not_a_value(name) for name, value in call.headers.items() if value == REDACTED]
    try:
        return str(bounds.endpoint_of(call.webhook_url)), flaws
    except InvalidInput as bad:
        return None, [*bad.flaws, *flaws]


def _not_a_value(name: str) -> Flaw:
    return Flaw(HEADERS + pointer_to(name), f"set the value of header {name!r}: the redaction mark cannot be sent")


def _with_stored_values(new: TaskPayload, present: TaskPayload, bounds: CallBounds) -> TaskPayload:
    """Restore redacted header values, but only for the same endpoint: no redacted value may be sent elsewhere."""
    if _endpoint_of(new, bounds)[0] != _endpoint_of(present, bounds)[0]:
        return new
    stored = {name: present.headers.get(name, value) for name, value in new.headers.items() if value == REDACTED}
    return replace(new, headers={**new.headers, **stored})


def _payload_of(spec: TaskSpec) -> dict[str, Any]:
    """Build the payload: the call for the handler, and the fields needed to present the task."""
    call = spec.payload
    payload = {"webhook_url": call.webhook_url, "method": call.method.value, "headers": call.headers, "body": call.body}
    if spec.retry.statuses is not None:
        payload[STATUSES] = sorted(set(spec.retry.statuses))
    given = {"interval": spec.interval, "timezone": spec.timezone}
    if spec.type is TaskType.RECURRING and spec.interval is None:
        return payload
    present = {name: value for name, value in given.items() if value is not None}
    return {**payload, "given": present} if present else payload


def _with_offset(instant: datetime | None, spec: TaskSpec) -> datetime | None:
    """Add the offset of the task's time zone to an instant without one."""
    if instant is None or instant.tzinfo is not None or spec.timezone is None or _flaws_of_zone(spec):
        return instant
    # Python shifts a skipped time forward and takes the first of two repeated ones, which is also the default of jobs.
    offset = instant.replace(tzinfo=zone(spec.timezone)).utcoffset()
    assert offset is not None
    return instant.replace(tzinfo=timezone(offset))


def _policy_of(retry: TaskRetry) -> RetryPolicy:
    if _has_delay_list(retry):
        delays = DAYS_LONG_MS if retry.delays_ms is None else retry.delays_ms
        return RetryPolicy(_attempts_of(retry, len(delays) + 1), Backoff.LIST, delays_ms=delays)
    default = RetryPolicy()
    first = default.initial_delay_ms if retry.initial_delay_ms is None else retry.initial_delay_ms
    return RetryPolicy(
        _attempts_of(retry, DEFAULT_ATTEMPTS),
        retry.backoff or Backoff.EXPONENTIAL,
        initial_delay_ms=first,
        max_delay_ms=max(default.max_delay_ms, first),
    )


def _has_delay_list(retry: TaskRetry) -> bool:
    return retry.backoff is Backoff.LIST or (retry.backoff is None and retry.delays_ms is not None)


def _attempts_of(retry: TaskRetry, enough: int) -> int:
    if retry.max_attempts is not None:
        return retry.max_attempts
    return min(max(DEFAULT_ATTEMPTS, enough), MOST_ATTEMPTS)


_FIELDS_OF_TYPE = {
    TaskType.ONE_TIME: ("scheduled_at", "timezone"),
    TaskType.RECURRING: ("cron_expression", "interval", "timezone", "end_date"),
}
_TIME_FIELDS = ("scheduled_at", "cron_expression", "interval", "end_date")


def _flaws_of_type(spec: TaskSpec) -> list[Flaw]:
    own = _FIELDS_OF_TYPE[spec.type]
    foreign = [name for name in _TIME_FIELDS if name not in own and getattr(spec, name) is not None]
    flaws = [_misplaced(spec, name) for name in foreign]
    if spec.type is TaskType.ONE_TIME:
        if spec.scheduled_at is None:
            flaws.append(Flaw("/scheduled_at", "a task of type ONE_TIME needs scheduled_at"))
    elif spec.cron_expression is None and spec.interval is None:
        flaws.append(Flaw("/cron_expression", "a task of type RECURRING needs cron_expression or interval"))
    elif spec.cron_expression is not None and spec.interval is not None:
        flaws.append(Flaw("/interval", "set cron_expression or interval, not both", spec.interval))
    if spec.ordered and spec.type is TaskType.ONE_TIME:
        detail = "a task of type ONE_TIME has only one call: ordered is allowed with type RECURRING only"
        flaws.append(Flaw("/ordered", detail, True))
    return flaws


def _misplaced(spec: TaskSpec, name: str) -> Flaw:
    allowed = ", ".join(_FIELDS_OF_TYPE[spec.type])
    detail = f"{name} is not allowed with type {spec.type}, which takes {allowed}"
    return Flaw(f"/{name}", detail, msgspec.to_builtins(getattr(spec, name)))


def _flaws_of_retry(retry: TaskRetry) -> list[Flaw]:
    return [*_flaws_of_waits(retry), *_flaws_of_statuses(retry.statuses or ())]


def _flaws_of_statuses(statuses: Sequence[int]) -> list[Flaw]:
    if len(statuses) > MOST_STATUSES:
        return [Flaw("/retry/statuses", f"at most {MOST_STATUSES} statuses can be listed", len(statuses))]
    return [_not_retried(index, status) for index, status in enumerate(statuses) if not _can_be_retried(status)]


def _can_be_retried(status: int) -> bool:
    return LEAST_STATUS <= status <= LAST_STATUS and status != GONE_STATUS


def _not_retried(index: int, status: int) -> Flaw:
    detail = f"{status} is not the status of a failure: retried statuses are {LEAST_STATUS} to {LAST_STATUS}"
    if status == GONE_STATUS:
        detail = f"{status} is never retried: with it a receiver stops the task"
    return Flaw(f"/retry/statuses/{index}", detail, status, f"{LEAST_STATUS} to {LAST_STATUS}, but not {GONE_STATUS}")


def _flaws_of_waits(retry: TaskRetry) -> list[Flaw]:
    if _has_delay_list(retry) and retry.initial_delay_ms is not None:
        detail = "initial_delay_ms is not allowed with backoff LIST, which takes delays_ms"
        return [Flaw("/retry/initial_delay_ms", detail, retry.initial_delay_ms)]
    if not _has_delay_list(retry) and retry.delays_ms is not None:
        detail = f"delays_ms is not allowed with backoff {retry.backoff}, which takes initial_delay_ms"
        return [Flaw("/retry/delays_ms", detail, list(retry.delays_ms))]
    return []


def _flaws_of_zone(spec: TaskSpec) -> list[Flaw]:
    if spec.timezone is None:
        return []
    try:
        zone(spec.timezone)
    except InvalidInput as bad:
        return list(bad.flaws)
    return []


def _flaws_of_job(job: JobSpec, spec: TaskSpec, now_ms: int) -> Sequence[Flaw]:
    try:
        check(job, now_ms, POOL)
    except InvalidInput as bad:
        return as_task_flaws(bad, spec).flaws
    return ()


def call_of(job: JobSpec) -> dict[str, Any]:
    """Return the call in a job's payload, without the fields that are stored for the task only."""
    return {name: value for name, value in _stored(job.payload).items() if name not in ("given", STATUSES)}


def schedule_of(job: JobSpec) -> dict[str, Any]:
    """Return the schedule of a job in the fields of a task."""
    given = _stored(_stored(job.payload).get("given"))
    interval = given.get("interval")
    if interval is None and job.every_sec is not None:
        interval = f"every {job.every_sec:.15g} seconds"
    return {
        "type": TaskType.ONE_TIME if job.one_shot else TaskType.RECURRING,
        "scheduled_at": job.run_at,
        "cron_expression": job.schedule if interval is None else None,
        "interval": interval,
        "timezone": given.get("timezone", job.timezone if interval is None else None),
        "end_date": job.end_at,
    }


def _stored(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one: old jobs of this pool may have any payload."""
    return value if isinstance(value, dict) else {}


def limits_of(job: JobSpec) -> dict[str, Any]:
    """Return retry policy, timeout and order of a job in the fields of a task."""
    policy = job.retry_policy or _policy_of(TaskRetry())
    listed = policy.backoff is Backoff.LIST
    retry = TaskRetry(
        max_attempts=policy.max_attempts,
        backoff=policy.backoff,
        initial_delay_ms=None if listed else policy.initial_delay_ms,
        delays_ms=policy.delays_ms if listed else None,
        statuses=_statuses_of(job),
    )
    return {
        "retry": retry,
        "timeout_seconds": job.timeout_sec or DEFAULT_TIMEOUT_SEC,
        "ordered": job.overlap is Overlap.BUFFER_ALL and not job.one_shot,
        "ordering_key": job.ordering_key,
    }


def _statuses_of(job: JobSpec) -> tuple[int, ...] | None:
    statuses = _stored(job.payload).get(STATUSES)
    if isinstance(statuses, list) and all(isinstance(status, int) for status in statuses):
        return tuple(statuses)
    return None


_TASK_NAMES = {
    "runAt": "scheduled_at",
    "endAt": "end_date",
    "everySec": "interval",
    "phaseSec": "interval",
    "timeoutSec": "timeout_seconds",
    "retryPolicy": "retry",
    "type INTERVAL": "field interval",
}
_ANY_JOB_NAME = re.compile(rf"\b({'|'.join(_TASK_NAMES)})\b")
_CAPITAL = re.compile(r"(?=[A-Z])")


def _as_task_flaw(flaw: Flaw, spec: TaskSpec) -> Flaw:
    head, *rest = flaw.pointer.removeprefix("/").split("/")
    if head in ("", "payload"):
        return flaw
    if head == "concurrency":
        return replace(flaw, pointer="/ordering_key")
    if head == "schedule":
        head = "interval" if spec.interval is not None else "cron_expression"
    steps = [_TASK_NAMES.get(head, head), *(_CAPITAL.sub("_", step).lower() for step in rest)]
    detail = _ANY_JOB_NAME.sub(lambda name: _TASK_NAMES[name[0]], flaw.detail)
    return replace(flaw, pointer="/" + "/".join(steps), detail=detail)


def _refusal(flaws: Sequence[Flaw]) -> InvalidInput:
    return InvalidInput(flaws[0].detail if len(flaws) == 1 else f"{len(flaws)} values are not valid", flaws)
