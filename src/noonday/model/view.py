"""Wire types of the API's responses, and the settings of pools and tenants."""

from datetime import date, datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from noonday.model.execution import Failure
from noonday.model.job import JobSpec, RequestBody
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
    """Reason why a PENDING execution has not started, for people."""
    version: int
    """The version of the job that the execution was fired with."""
    attempts: tuple[AttemptView, ...] = ()
    transitions: tuple[TransitionView, ...] = ()
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads the execution. `progress` and `result` are null then."""


class AttemptLogsView(_View, frozen=True, kw_only=True):
    """The log lines of one attempt. An attempt that was snoozed or interrupted has one entry for each dispatch."""

    attempt: int
    dispatch: int
    outcome: str
    started_at: datetime | None
    finished_at: datetime | None
    text: str | None
    """The last lines that the handler logged, each with time and level, after a note of what was dropped before them."""
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads the lines. `text` is null then."""


class ExecutionLogsView(_View, frozen=True, kw_only=True):
    """What the handler of an execution logged, attempt by attempt, oldest first."""

    execution_id: str
    attempts: tuple[AttemptLogsView, ...]


class SkipView(_View, frozen=True, kw_only=True):
    """An occurrence to come that will not fire."""

    at: datetime
    by: str
    reason: str | None
    requested_at: datetime


class MoveView(_View, frozen=True, kw_only=True):
    """An occurrence that fires at another time than its own."""

    at: datetime
    to: datetime
    by: str
    reason: str | None
    requested_at: datetime


class JobView(JobSpec, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=False):
    job_id: str
    tenant: str
    state: str
    """ACTIVE, PAUSED, COMPLETED, DEAD or CANCELLED."""
    version: int
    created_at: datetime
    updated_at: datetime
    next_fire_at: datetime | None
    next_fire_at_local: str | None
    runs_left: int | None = None
    halted: str | None = None
    """Reason why the job is PAUSED, if no user has paused it."""
    skips: tuple[SkipView, ...] = ()
    """Occurrences to come that are skipped."""
    moves: tuple[MoveView, ...] = ()
    """Occurrences that were moved, until both their former and their new time have passed."""
    paused_until: datetime | None = None
    """When the job is resumed, if it is PAUSED with an end."""
    warnings: tuple[str, ...] = ()
    executions: tuple[ExecutionView, ...] = ()
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads the job. `payload` is null then."""


READ_ONLY_FIELDS = frozenset(
    {field.encode_name for field in msgspec.structs.fields(JobView)}
    - {field.encode_name for field in msgspec.structs.fields(JobSpec)}
)
"""Fields of a JobView, by their names in JSON, that a definition does not have. The server sets them."""


INSTEAD_OF_READ_ONLY = {
    "state": "POST /v1/jobs/{id}/pause, POST /v1/jobs/{id}/resume or DELETE /v1/jobs/{id} changes it",
    "version": "send If-Match to change a certain version only",
    "nextFireAt": "the schedule determines it",
}
"""What to do instead of setting a read-only field."""


class Page(_View, frozen=True, kw_only=True):
    """A page of a list. `next` is the cursor of the following page, None at the end."""

    next: str | None = None


class JobPage(Page, frozen=True, kw_only=True):
    jobs: tuple[JobView, ...]


class ExecutionPage(Page, frozen=True, kw_only=True):
    executions: tuple[ExecutionView, ...]


class OccurrenceView(_View, frozen=True, kw_only=True):
    """The outcome of one occurrence, or of a range of occurrences that were decided together."""

    outcome: str
    """FIRED, MISSED, SKIPPED, MOVED, PAUSED, EXPIRED, EDITED, CANCELLED, ERROR, DUE or PLANNED."""
    scheduled_at: datetime
    until: datetime
    count: int
    reason: str
    execution_id: str | None = None
    state: str | None = None
    local: str | None = None
    blocked_by: str | None = None
    """Reason why a DUE occurrence waits: PAUSE, NO_WORKERS, KEY, TENANT_CAP, TENANT_POOL_CAP, POOL_CAP, TENANT_RATE, POOL_FULL or
    TURN."""
    position: int | None = None
    """Number of entries before a DUE occurrence that wait for the same reason."""
    position_is_least: bool = False
    """True if `position` is a lower bound: not all entries were counted."""
    expected_at: datetime | None = None
    """Estimated start of a DUE occurrence, if it can be estimated. The earliest start if `position` is a lower bound."""


class OccurrencePage(Page, frozen=True, kw_only=True):
    occurrences: tuple[OccurrenceView, ...]
    is_least: bool = False
    """True if planned occurrences may be missing at the end: computing them took longer than a request may take."""


class PreviewTime(_View, frozen=True, kw_only=True):
    utc: datetime
    local: str
    dst: str | None = None


class Preview(_View, frozen=True, kw_only=True):
    description: str
    timezone: str | None
    times: tuple[PreviewTime, ...]
    is_least: bool = False
    """True if `times` has fewer times than requested: computing more took longer than a request may take."""


class BackfillView(_View, frozen=True, kw_only=True):
    backfill_id: str
    job_id: str
    from_: datetime = msgspec.field(name="from")
    to: datetime
    total: int
    """Number of occurrences in the range."""
    created: int
    """Number of executions that this call created. Those that the same backfill created before are not created again."""
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
    """Number of items that a bulk call changed, and whether more are left."""

    changed: int
    more: bool


class HandlerView(_View, frozen=True, kw_only=True):
    name: str
    schema: dict[str, Any] | None
    retry_policy: RetryPolicy | None
    timeout_sec: float | None
    workers: int
    doc: str | None = None


class PoolSettings(RequestBody, frozen=True, kw_only=True):
    """The body of `PUT /v1/pools/{name}`: defaults for the jobs of a pool, and its cap."""

    retry_policy: RetryPolicy | None = None
    timeout_sec: float | None = None
    max_running: int | None = None
    """Maximum number of executions of all tenants that are dispatched at once."""
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
    """Number of due entries on the timeline that have not been dispatched."""
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
    """A pause of a tenant, a pool, or everything (`kind` ALL, without a name)."""

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


class TenantInPool(RequestBody, frozen=True, kw_only=True):
    """The limits of a tenant in one pool."""

    max_running: int | None = None


class TenantSettings(RequestBody, frozen=True, kw_only=True):
    """The body of `PUT /v1/tenants/{id}`. It takes effect within seconds."""

    weight: int = 1
    rate_per_sec: float | None = None
    burst: int | None = None
    max_running: int | None = None
    """Maximum number of executions that are dispatched at once."""
    pools: dict[str, TenantInPool] = msgspec.field(default_factory=dict)
    max_jobs: int | None = None
    max_payload_bytes: int | None = None
    default_spread_sec: float | None = None
    retention_days: int | None = None


class TenantView(_View, frozen=True, kw_only=True):
    tenant: str
    settings: TenantSettings
    updated_at: datetime | None


class UsedView(_View, frozen=True, kw_only=True):
    """Total usage of runs that ended. Some neither succeeded nor failed: they were cancelled, snoozed or interrupted."""

    runs: int
    succeeded: int
    failed: int
    run_seconds: float
    payload_bytes: int


class DayUsedView(UsedView, frozen=True, kw_only=True):
    day: date


class UsageView(_View, frozen=True, kw_only=True):
    """Usage of a tenant on some days (UTC). Days without a run are left out."""

    tenant: str
    from_: date = msgspec.field(name="from")
    to: date
    days: tuple[DayUsedView, ...]
    total: UsedView
