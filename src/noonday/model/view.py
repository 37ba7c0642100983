"""What the read side answers, in the words of the wire."""

from datetime import date, datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from noonday.model.execution import Failure
from noonday.model.job import JobSpec
from noonday.model.retry import RetryPolicy


class _View(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class AttemptView(_View, frozen=True, kw_only=True):
    attempt: int
    dispatch: int
    state: str
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    error: Failure | None = None


class TransitionView(_View, frozen=True, kw_only=True):
    state: str
    at: datetime
    attempt: int
    dispatch: int
    worker_id: str | None = None
    reason: str | None = None


class ExecutionView(_View, frozen=True, kw_only=True):
    execution_id: str
    job_id: str
    job_name: str | None
    state: str
    attempt: int
    dispatch: int
    cause: str
    pool: str
    handler: str
    scheduled_at: datetime
    """The nominal time of the occurrence."""
    due_at: datetime
    next_attempt_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    error: Failure | None
    progress: Any
    result: Any
    trace_id: str | None
    logs_url: str | None
    cancel_requested: str | None
    retry_of: str | None
    waiting_for: str | None
    """Why a PENDING one has not started: in words."""
    version: int
    """The version of the job it was fired with."""
    attempts: tuple[AttemptView, ...] = ()
    transitions: tuple[TransitionView, ...] = ()
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads it: `progress` and `result` are null."""


class JobView(JobSpec, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=False):
    job_id: str
    tenant: str
    state: str
    """ACTIVE, PAUSED, COMPLETED or CANCELLED."""
    version: int
    created_at: datetime
    updated_at: datetime
    next_fire_at: datetime | None
    next_fire_at_local: str | None
    runs_left: int | None = None
    halted: str | None = None
    """Why it is PAUSED, if no user has paused it."""
    warnings: tuple[str, ...] = ()
    executions: tuple[ExecutionView, ...] = ()
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads it: `payload` is null."""


class Page(_View, frozen=True, kw_only=True):
    """`next` is the cursor of the following page; None at the end."""

    next: str | None = None


class JobPage(Page, frozen=True, kw_only=True):
    jobs: tuple[JobView, ...]


class ExecutionPage(Page, frozen=True, kw_only=True):
    executions: tuple[ExecutionView, ...]


class OccurrenceView(_View, frozen=True, kw_only=True):
    """One occurrence, or a run of them decided together, and what became of it."""

    outcome: str
    """FIRED, MISSED, SKIPPED, PAUSED, EXPIRED, EDITED, CANCELLED, ERROR, DUE or PLANNED."""
    scheduled_at: datetime
    until: datetime
    count: int
    reason: str
    execution_id: str | None = None
    state: str | None = None
    local: str | None = None
    blocked_by: str | None = None
    """What a DUE one waits for: PAUSE, NO_WORKERS, KEY, TENANT_CAP, TENANT_POOL_CAP, POOL_CAP, TENANT_RATE, POOL_FULL or
    TURN."""
    position: int | None = None
    """How many are before a DUE one, of those that wait for the same."""
    position_is_least: bool = False
    """Whether there may be more before it: not all were counted."""
    expected_at: datetime | None = None
    """About when a DUE one starts, if that can be told. Not before then, if there may be more before it."""


class OccurrencePage(Page, frozen=True, kw_only=True):
    occurrences: tuple[OccurrenceView, ...]
    is_least: bool = False
    """Planned ones may be missing at the end: working them out took more time than a request may take."""


class PreviewTime(_View, frozen=True, kw_only=True):
    utc: datetime
    local: str
    dst: str | None = None


class Preview(_View, frozen=True, kw_only=True):
    description: str
    timezone: str | None
    times: tuple[PreviewTime, ...]
    is_least: bool = False
    """Fewer than were asked for: working out more took more time than a request may take."""


class BackfillView(_View, frozen=True, kw_only=True):
    backfill_id: str
    job_id: str
    from_: datetime = msgspec.field(name="from")
    to: datetime
    total: int
    """How many occurrences the range has."""
    created: int
    """How many executions this call made; those made before by the same backfill are not made again."""
    first: tuple[datetime, ...]
    preview: bool


class DeadLetterView(_View, frozen=True, kw_only=True):
    execution: ExecutionView
    died_at: datetime
    archived: bool
    retried_as: str | None


class DeadLetterPage(Page, frozen=True, kw_only=True):
    dead_letters: tuple[DeadLetterView, ...]


class BulkView(_View, frozen=True, kw_only=True):
    """How many things a call on a filter changed, and whether more are left."""

    changed: int
    more: bool


class HandlerView(_View, frozen=True, kw_only=True):
    name: str
    schema: dict[str, Any] | None
    retry_policy: RetryPolicy | None
    timeout_sec: float | None
    workers: int
    doc: str | None = None


class PoolSettings(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What `PUT /v1/pools/{name}` can say: defaults for the jobs of a pool, and its cap."""

    retry_policy: RetryPolicy | None = None
    timeout_sec: float | None = None
    max_running: int | None = None
    """How many executions may be handed out at once, whoever they are of."""
    description: str | None = None


class PoolView(_View, frozen=True, kw_only=True):
    name: str
    settings: PoolSettings
    handlers: tuple[HandlerView, ...]
    workers: int
    capacity: int
    queued: int
    running: int
    due: int
    """Entries due on the timeline that have not been handed out."""
    note: str | None = None


class RunningView(_View, frozen=True, kw_only=True):
    execution_id: str
    job_id: str
    handler: str
    started_at: datetime


class WorkerView(_View, frozen=True, kw_only=True):
    worker_id: str
    host: str | None
    """Null, as `pid` is, unless the caller is an operator."""
    pid: int | None
    pools: dict[str, int]
    started_at: datetime
    last_seen_at: datetime
    state: str
    """ALIVE, GONE or LOST."""
    running: tuple[RunningView, ...] = ()
    stuck: tuple[str, ...] = ()


class PauseView(_View, frozen=True, kw_only=True):
    """What is held: a tenant, a pool, or everything (`kind` ALL, without a name)."""

    kind: str
    name: str
    since: datetime
    by: str


class PauseList(_View, frozen=True, kw_only=True):
    pauses: tuple[PauseView, ...]


class AuditView(_View, frozen=True, kw_only=True):
    at: datetime
    subject: str
    action: str
    target: str
    detail: dict[str, Any]


class AuditPage(Page, frozen=True, kw_only=True):
    entries: tuple[AuditView, ...]


class TenantInPool(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What holds for a tenant in one pool."""

    max_running: int | None = None


class TenantSettings(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What `PUT /v1/tenants/{id}` can say. It is in effect within seconds."""

    weight: int = 1
    rate_per_sec: float | None = None
    burst: int | None = None
    max_running: int | None = None
    """How many executions may be handed out at once."""
    pools: dict[str, TenantInPool] = {}
    max_jobs: int | None = None
    max_payload_bytes: int | None = None
    default_spread_sec: float | None = None
    retention_days: int | None = None


class TenantView(_View, frozen=True, kw_only=True):
    tenant: str
    settings: TenantSettings
    updated_at: datetime | None


class UsedView(_View, frozen=True, kw_only=True):
    """What runs that ended have used. Some neither succeeded nor failed: they were cancelled, snoozed or interrupted."""

    runs: int
    succeeded: int
    failed: int
    run_seconds: float
    payload_bytes: int


class DayUsedView(UsedView, frozen=True, kw_only=True):
    day: date


class UsageView(_View, frozen=True, kw_only=True):
    """What a tenant used on some days (UTC). Days without a run are left out."""

    tenant: str
    from_: date = msgspec.field(name="from")
    to: date
    days: tuple[DayUsedView, ...]
    total: UsedView
