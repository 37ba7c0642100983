"""Jobs: their definition, its validation, and the schedule rule that follows from it."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from noonday.model import cron_parsing, schedule, zones
from noonday.model.endpoint import ENDPOINT_PATTERN, LONGEST_ENDPOINT, flaw_of_endpoint
from noonday.model.errors import Flaw, InvalidInput, dotted, sentence_on
from noonday.model.ids import JobId, TenantId, stable_fraction
from noonday.model.instants import instant_of as instant_of
from noonday.model.instants import ms_of as ms_of
from noonday.model.instants import text_of as text_of
from noonday.model.move import Move
from noonday.model.offset_changes import Gap, Repeat
from noonday.model.pool import flaws_of_built_in
from noonday.model.retry import RetryPolicy, flaws_of
from noonday.model.skip import Skip

RUN_AT_TOLERANCE_MS = 60_000
YEAR_SEC = 366 * 24 * 3600
LONGEST_SHOWN = 200
"""Number of characters of a refused text that the error message repeats."""
_NAME = re.compile(r"^[^\x00-\x1f\x7f]{1,200}$")
_TARGET_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")


class JobType(StrEnum):
    ONE_TIME = "ONE_TIME"
    DELAYED = "DELAYED"
    CRON = "CRON"
    INTERVAL = "INTERVAL"


class Priority(StrEnum):
    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"


class Overlap(StrEnum):
    """Policy for a fire while an earlier execution of the same job is open."""

    ALLOW = "ALLOW"
    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    BUFFER_ALL = "BUFFER_ALL"
    CANCEL_OTHER = "CANCEL_OTHER"


class CatchUpPolicy(StrEnum):
    """Policy for missed occurrences: the ones that fire late."""

    ALL = "ALL"
    LATEST = "LATEST"
    NONE = "NONE"


class JobState(IntEnum):
    """The stored state of a job. COMPLETED and DEAD are computed when read: no time on the timeline and no open execution."""

    ACTIVE = 0
    PAUSED = 1
    CANCELLED = 2


class RequestBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    pass


class Target(RequestBody, frozen=True):
    pool: str
    handler: str
    endpoint: (
        Annotated[str, msgspec.Meta(extra_json_schema={"pattern": ENDPOINT_PATTERN, "maxLength": LONGEST_ENDPOINT})]
        | None
    ) = None
    """Scheme, host and port that the handler calls. Secrets, limits and health are kept per endpoint."""


class CatchUp(RequestBody, frozen=True):
    policy: CatchUpPolicy = CatchUpPolicy.LATEST
    window_sec: int = 86_400
    while_paused: bool = False


class Dst(RequestBody, frozen=True):
    gap: Gap = Gap.SHIFT
    repeat: Repeat = Repeat.FIRST


class Concurrency(RequestBody, frozen=True):
    key: str
    limit: int
    ordered: bool = False
    """Run one at a time, by due time. Each starts after the one before it has ended, retries included."""


class JobSpec(RequestBody, frozen=True, kw_only=True):
    """The definition of a job. The same type is used on the wire, in the SDK and in the store."""

    type: JobType
    target: Target
    name: str | None = None
    payload: Annotated[Any, msgspec.Meta(description="Any JSON up to 256 KB, handed to the handler")] = None
    run_at: datetime | None = None
    delay_sec: float | None = None
    schedule: str | None = None
    timezone: str | None = None
    dst: Dst = Dst()
    every_sec: float | None = None
    phase_sec: float = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    max_runs: int | None = None
    overlap: Overlap = Overlap.ALLOW
    catch_up: CatchUp = CatchUp()
    start_deadline_sec: float | None = None
    spread_sec: float | None = None
    """If null, a recurring job gets its tenant's default when it is created or replaced. 0 means no spread."""
    unique_key: str | None = None
    concurrency: Concurrency | None = None
    priority: Priority = Priority.NORMAL
    retry_policy: RetryPolicy | None = None
    timeout_sec: float | None = None
    heartbeat_timeout_sec: float | None = None
    tags: tuple[str, ...] = ()

    @property
    def one_shot(self) -> bool:
        return self.type in (JobType.ONE_TIME, JobType.DELAYED)

    @property
    def ordering_key(self) -> str | None:
        """The concurrency key if it is ordered, else None."""
        return self.concurrency.key if self.concurrency and self.concurrency.ordered else None


class Job(msgspec.Struct, frozen=True):
    """A job as it is stored. `spec` has no payload; `payload` has it as ciphertext."""

    id: JobId
    tenant: TenantId
    revision: int
    state: JobState
    spec: JobSpec
    anchor_ms: int
    """Time to run at, for a one-shot; else the time when the job was created or last replaced."""
    payload: bytes | None
    created_ms: int
    updated_ms: int
    trace: str | None = None
    halted: str | None = None
    """The reason of a pause that no user made."""
    skips: tuple[Skip, ...] = ()
    moves: tuple[Move, ...] = ()
    """Moves in the order of the requests."""
    paused_until_ms: int | None = None
    """When a paused job is resumed. None: when a user resumes it."""


def rule_of(spec: JobSpec, anchor_ms: int) -> schedule.Rule:
    """Return the schedule rule of a job, which computes its occurrences."""
    if spec.one_shot:
        return schedule.OnceRule(anchor_ms)
    start, end = ms_of(spec.start_at), ms_of(spec.end_at)
    if spec.type is JobType.CRON:
        assert spec.schedule is not None
        return schedule.CronRule(
            spec.schedule, spec.timezone or "UTC", spec.dst.gap, spec.dst.repeat, start_ms=start, end_ms=end
        )
    assert spec.every_sec is not None
    return schedule.IntervalRule(
        every_ms=round(spec.every_sec * 1000), phase_ms=round(spec.phase_sec * 1000), start_ms=start, end_ms=end
    )


def spread_ms(spec: JobSpec, job_id: JobId) -> int:
    """Return how long after its nominal time a job is due. All occurrences of a job have the same spread."""
    return int(spec.spread_sec * 1000 * stable_fraction(f"spread/{job_id}")) if spec.spread_sec else 0


def with_default_spread(spec: JobSpec, default_sec: float | None) -> JobSpec:
    """Return the spec with the default spread if it is a recurring job without a spread, else unchanged."""
    if not default_sec or spec.spread_sec is not None or spec.one_shot:
        return spec
    return msgspec.structs.replace(spec, spread_sec=default_sec)


def anchor_of(spec: JobSpec, now_ms: int) -> int:
    """Return the instant at which a one-shot runs, or from which the schedule of another job counts."""
    if spec.type is JobType.DELAYED:
        return now_ms + round((spec.delay_sec or 0) * 1000)
    if spec.type is JobType.ONE_TIME and spec.run_at is not None:
        return ms_of(spec.run_at)
    return now_ms


def check(spec: JobSpec, now_ms: int, maker_of: str | None = None) -> None:
    """Validate a spec. Raises InvalidInput with every flaw, its value, and what is allowed.

    A job for a built-in pool is refused, unless `maker_of` names that pool: its own service passes it.
    """
    flaws = [*_check_texts(spec), *_check_type(spec), *_check_times(spec, now_ms), *_check_numbers(spec)]
    flaws += flaws_of_built_in(spec.target.pool, maker_of)
    if spec.retry_policy:
        flaws += flaws_of(spec.retry_policy, "/retryPolicy")
    if flaws:
        alone = sentence_on(dotted(flaws[0].pointer), flaws[0].detail)
        raise InvalidInput(alone if len(flaws) == 1 else f"{len(flaws)} values are not valid", flaws)


FIELDS_OF_TYPE = {
    JobType.ONE_TIME: {"run_at"},
    JobType.DELAYED: {"delay_sec"},
    JobType.CRON: {"schedule", "timezone", "dst", "start_at", "end_at", "max_runs", "catch_up"},
    JobType.INTERVAL: {"every_sec", "phase_sec", "start_at", "end_at", "max_runs", "catch_up"},
}
TIMING_FIELDS: set[str] = set().union(*FIELDS_OF_TYPE.values())
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(JobSpec)}
_REQUIRED = {JobType.DELAYED: "delay_sec", JobType.CRON: "schedule", JobType.INTERVAL: "every_sec"}


class _Defaults:
    """Checks whether some fields of a spec all have their defaults. One comparison, because it is done for every job."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        self._values = attrgetter(*self.names)
        self._defaults = tuple(_DEFAULTS[name] for name in self.names)

    def apply_to(self, spec: JobSpec) -> bool:
        return bool(self._values(spec) == self._defaults)


_FOREIGN = {type_: _Defaults(TIMING_FIELDS - own) for type_, own in FIELDS_OF_TYPE.items()}


def _check_type(spec: JobSpec) -> list[Flaw]:
    flaws = []
    required = _REQUIRED.get(spec.type)
    if required and getattr(spec, required) is None:
        flaws.append(Flaw(f"/{wire_name(required)}", f"a job of type {spec.type} needs {wire_name(required)}"))
    foreign = _FOREIGN[spec.type]
    if not foreign.apply_to(spec):
        flaws += [_misplaced(spec, name) for name in foreign.names if getattr(spec, name) != _DEFAULTS[name]]
    if spec.schedule is not None:
        flaws += _flaws_raised_by(cron_parsing.parse, spec.schedule)
    if spec.timezone is not None:
        flaws += _flaws_raised_by(zones.zone, spec.timezone)
    return flaws


def _misplaced(spec: JobSpec, field: str) -> Flaw:
    allowed = ", ".join(sorted(wire_name(name) for name in FIELDS_OF_TYPE[spec.type]))
    detail = f"{wire_name(field)} does not go with type {spec.type}, which takes {allowed}"
    return Flaw(f"/{wire_name(field)}", detail, msgspec.to_builtins(getattr(spec, field)))


def _flaws_raised_by(function: Any, value: str) -> list[Flaw]:
    try:
        function(value)
    except InvalidInput as bad:
        return list(bad.flaws)
    return []


_NO_TEXTS = _Defaults({"name", "unique_key", "concurrency", "tags"})


@lru_cache(maxsize=4096)
def is_target_name(value: str) -> bool:
    return _TARGET_NAME.fullmatch(value) is not None


def _check_texts(spec: JobSpec) -> list[Flaw]:
    flaws: list[Flaw] = []
    for pointer, value in (("/target/pool", spec.target.pool), ("/target/handler", spec.target.handler)):
        if not is_target_name(value):
            detail = "must be 1 to 100 letters, digits, '.', '_', ':' or '-', beginning with a letter or digit"
            flaws.append(Flaw(pointer, detail, value))
    if spec.target.endpoint is not None and (flaw := flaw_of_endpoint(spec.target.endpoint)):
        flaws.append(Flaw("/target/endpoint", flaw, spec.target.endpoint[:LONGEST_SHOWN]))
    if _NO_TEXTS.apply_to(spec):
        return flaws
    named = [("/name", spec.name), ("/uniqueKey", spec.unique_key)]
    if spec.concurrency:
        named.append(("/concurrency/key", spec.concurrency.key))
    named += [(f"/tags/{i}", tag) for i, tag in enumerate(spec.tags)]
    for pointer, text in named:
        if text is not None and not _NAME.fullmatch(text):
            flaws.append(Flaw(pointer, "must be 1 to 200 characters without control characters", text))
    if len(spec.tags) > 50:
        flaws.append(Flaw("/tags", "at most 50 tags", len(spec.tags)))
    return flaws


_NO_TIMES = _Defaults({"run_at", "start_at", "end_at"})


def _check_times(spec: JobSpec, now_ms: int) -> list[Flaw]:
    flaws: list[Flaw] = []
    if _NO_TIMES.apply_to(spec):
        return flaws
    for field in ("run_at", "start_at", "end_at"):
        value = getattr(spec, field)
        if value is None:
            continue
        if value.tzinfo is None:
            flaws.append(
                Flaw(f"/{wire_name(field)}", "needs an offset, such as 2030-01-31T09:00:00Z", value.isoformat())
            )
        elif not datetime(1971, 1, 1, tzinfo=UTC) <= value <= datetime(9000, 1, 1, tzinfo=UTC):
            flaws.append(Flaw(f"/{wire_name(field)}", "must lie between the years 1971 and 9000", value.isoformat()))
    if flaws:
        return flaws
    run_at = ms_of(spec.run_at)
    if run_at is not None and run_at < now_ms - RUN_AT_TOLERANCE_MS:
        assert spec.run_at is not None
        detail = f"runAt is more than 60 s in the past; the server's time is {text_of(now_ms)}"
        flaws.append(Flaw("/runAt", detail, spec.run_at.isoformat()))
    if spec.start_at and spec.end_at and spec.end_at < spec.start_at:
        flaws.append(Flaw("/endAt", "endAt lies before startAt", spec.end_at.isoformat()))
    return flaws


JOB_BOUNDS: dict[str, tuple[float, float]] = {
    "delay_sec": (0, 100 * YEAR_SEC),
    "every_sec": (1, 100 * YEAR_SEC),
    "phase_sec": (0, 100 * YEAR_SEC),
    "max_runs": (1, 10**12),
    "start_deadline_sec": (0, 100 * YEAR_SEC),
    "spread_sec": (0, 86_400),
    "timeout_sec": (0.001, 30 * 86_400),
    "heartbeat_timeout_sec": (1, 30 * 86_400),
}
"""The least and the greatest value of each number of a JobSpec, by field."""


def bounds_text(field: str) -> str:
    """Describe the bounds of a number: `must be at least 1 s and at most 100 years`."""
    low, high = JOB_BOUNDS[field]
    if not field.endswith("_sec"):
        return f"must be at least {low:,} and at most {high:,}"
    return f"must be at least {low:g} s and at most {_duration_text(high)}"


def _duration_text(seconds: float) -> str:
    size, unit = (YEAR_SEC, "year") if seconds >= YEAR_SEC else (86_400, "day")
    count = f"{seconds / size:g}"
    return f"{count} {unit}" if count == "1" else f"{count} {unit}s"


_NO_NUMBERS = _Defaults({*JOB_BOUNDS, "catch_up", "concurrency"})


def _check_numbers(spec: JobSpec) -> list[Flaw]:
    flaws: list[Flaw] = []
    if _NO_NUMBERS.apply_to(spec):
        return flaws
    for field, (low, high) in JOB_BOUNDS.items():
        value = getattr(spec, field)
        if value is not None and not low <= value <= high:
            flaws.append(Flaw(f"/{wire_name(field)}", bounds_text(field), value))
    if not 10 <= spec.catch_up.window_sec <= 10 * YEAR_SEC:
        flaws.append(Flaw("/catchUp/windowSec", "must be from 10 s to ten years", spec.catch_up.window_sec))
    if spec.concurrency and not 1 <= spec.concurrency.limit <= 1_000_000:
        flaws.append(Flaw("/concurrency/limit", "must be from 1 to 1000000", spec.concurrency.limit))
    elif spec.ordering_key and spec.concurrency and spec.concurrency.limit != 1:
        flaws.append(
            Flaw("/concurrency/limit", "must be 1 with ordered, which is one at a time", spec.concurrency.limit)
        )
    return flaws


@lru_cache
def wire_name(field: str) -> str:
    """Return the name of a field of a JobSpec in JSON."""
    head, *rest = field.split("_")
    return head + "".join(word.capitalize() for word in rest)
