"""Tasks as the API and its clients exchange them. Field names are snake_case."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from noonday.model.execution import State
from noonday.model.filters import Instant
from noonday.model.pool import WEBHOOKS_POOL
from noonday.model.retry import Backoff

POOL, HANDLER = WEBHOOKS_POOL, "webhook.call"
DEFAULT_TIMEOUT_SEC = 30.0
DEFAULT_ATTEMPTS, MOST_ATTEMPTS = 5, 100
GONE_STATUS = 410
"""Status with which a receiver stops its task."""
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
DAYS_LONG_MS = (
    *(5_000, 5 * _MINUTE_MS, 30 * _MINUTE_MS),
    *(hours * _HOUR_MS for hours in (2, 5, 10, 14, 20, 24)),
)
"""Delays that Standard Webhooks proposes: ten attempts over three days."""


class Method(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"


class TaskType(StrEnum):
    ONE_TIME = "ONE_TIME"
    RECURRING = "RECURRING"


class TaskStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    """At least one call is to come, and none is running."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    """A one-time task failed, or the task was stopped."""


class RequestedStatus(StrEnum):
    """Status that a patch can request: PAUSED pauses a task, SCHEDULED resumes it."""

    PAUSED = "PAUSED"
    SCHEDULED = "SCHEDULED"


class ExecutionStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


STATE_OF = {
    ExecutionStatus.PENDING: State.PENDING,
    ExecutionStatus.RUNNING: State.RUNNING,
    ExecutionStatus.COMPLETED: State.SUCCEEDED,
    ExecutionStatus.FAILED: State.DEAD,
    ExecutionStatus.CANCELLED: State.CANCELLED,
    ExecutionStatus.EXPIRED: State.EXPIRED,
}
"""Engine state of each execution status, for filters."""
STATUS_NAMES = {state.name: status.value for status, state in STATE_OF.items()}


class _RequestBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class TaskPayload(_RequestBody, frozen=True, kw_only=True):
    """The HTTP call of a task."""

    webhook_url: str
    method: Method = Method.POST
    headers: dict[str, str] = {}
    body: Any = None
    """Any JSON value; null sends no body."""


class TaskRetry(_RequestBody, frozen=True, kw_only=True):
    """Retry policy of a call. Delays are upper bounds; the real delay is random up to that."""

    max_attempts: int | None = None
    """Default: 5, or more if the list has more delays."""
    backoff: Backoff | None = None
    """Default: LIST if `delays_ms` is set, else EXPONENTIAL. LIST without `delays_ms` retries for three days."""
    initial_delay_ms: int | None = None
    delays_ms: tuple[int, ...] | None = None
    statuses: tuple[int, ...] | None = None
    """Retried statuses; default: 408, 425, 429 and 500 to 599. A call without a response is always retried."""


class TaskSpec(_RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/tasks`. ONE_TIME needs `scheduled_at`; RECURRING needs `cron_expression` or `interval`."""

    type: TaskType
    payload: TaskPayload
    name: str | None = None
    scheduled_at: datetime | None = None
    cron_expression: str | None = None
    interval: str | None = None
    timezone: str | None = None
    """Time zone of the schedule, and of `scheduled_at` and `end_date` if they have no offset."""
    end_date: datetime | None = None
    retry: TaskRetry = TaskRetry()
    timeout_seconds: float = DEFAULT_TIMEOUT_SEC
    ordered: bool = False
    """Make calls one at a time, in order; each waits for all attempts of the one before it. RECURRING only."""
    ordering_key: str | None = None
    """Make calls of all tasks with the same key one at a time, in order."""


class TaskPatch(_RequestBody, frozen=True, kw_only=True):
    """Request body of `PATCH /v1/tasks/{id}`: the fields to change. A cron expression replaces an interval, and vice versa."""

    status: RequestedStatus | UnsetType = UNSET
    """Cannot be combined with other fields."""
    name: str | UnsetType | None = UNSET
    payload: TaskPayload | UnsetType = UNSET
    scheduled_at: datetime | UnsetType = UNSET
    cron_expression: str | UnsetType | None = UNSET
    interval: str | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    end_date: datetime | UnsetType | None = UNSET
    retry: TaskRetry | UnsetType = UNSET
    timeout_seconds: float | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    ordering_key: str | UnsetType | None = UNSET


class _ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    pass


class TaskAttemptView(_ResponseBody, frozen=True, kw_only=True):
    attempt_number: int
    status: str
    started_at: datetime | None
    completed_at: datetime | None
    error_message: str | None


class TaskExecutionView(_ResponseBody, frozen=True, kw_only=True):
    id: str
    task_id: str
    status: str
    scheduled_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    attempt_number: int
    next_attempt_at: datetime | None
    error_message: str | None
    retry_of: str | None = None
    """Execution whose call this one repeats."""
    attempts: tuple[TaskAttemptView, ...] = ()


UrlOfEndpoint = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\]+$",
        max_length=2_000,
        description="A URL; its scheme, host and port select the endpoint that the task currently calls",
    ),
]


class ResolvedBy(StrEnum):
    """Resolution of a dead letter."""

    RETRY = "RETRY"
    ARCHIVE = "ARCHIVE"


class TaskCallView(TaskExecutionView, frozen=True, kw_only=True):
    """An execution in the list of all tasks' calls."""

    task_name: str | None
    webhook_url: str | None
    resolved_by: ResolvedBy | None
    """Resolution of the dead letter of a FAILED execution."""
    retried_as: str | None
    redacted: bool | UnsetType = UNSET
    """True if the caller is an operator of another tenant. Then `webhook_url` is null."""


class TaskCallPage(_ResponseBody, frozen=True, kw_only=True):
    """A page may be short or empty although there is a `next`, because the number of executions scanned is limited."""

    executions: tuple[TaskCallView, ...]
    next: str | None


class ResentView(TaskExecutionView, frozen=True, kw_only=True):
    with_present_payload: bool
    """True if the task was changed since and its old definition is deleted; the call uses the current definition."""


class ResendRequest(_RequestBody, frozen=True, kw_only=True):
    """Executions of any tasks whose calls to resend."""

    ids: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=100)], ...], msgspec.Meta(min_length=1, max_length=500)]
    replay_id: Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,40}$")] | None = None
    """Id of a replay. Under one id each execution is resent once, whatever the Idempotency-Key."""


class ResendResult(_ResponseBody, frozen=True, kw_only=True):
    id: str
    resent_as: str | None = None
    there_already: bool = False
    """True if nothing was sent: this `replay_id` resent the execution before, or created it."""
    with_present_payload: bool = False
    problem: str | None = None
    """Reason why the execution was not resent."""


class ResendList(_ResponseBody, frozen=True, kw_only=True):
    results: tuple[ResendResult, ...]
    """One result for each distinct id."""


class TaskDeadFilter(_RequestBody, frozen=True, kw_only=True):
    """Filter of dead letters of tasks. All conditions must match; without conditions, all dead letters."""

    task_id: str | None = None
    endpoint: UrlOfEndpoint | None = None
    error: str | None = None
    """Substring of the last error, such as `TIMEOUT` or `answered 503`."""
    since: Instant | None = None
    until: Instant | None = None
    archived: bool = False


class TaskDeadLetterView(_ResponseBody, frozen=True, kw_only=True):
    id: str
    """Id of the execution."""
    task_id: str
    task_name: str | None
    webhook_url: str | None
    error_type: str | None
    error_message: str | None
    attempts: int
    failed_at: datetime
    resolved_at: datetime | None
    """Null also for dead letters resolved before this time was recorded."""
    resolved_by: ResolvedBy | None
    retried_as: str | None
    redacted: bool | UnsetType = UNSET
    """True if the caller is an operator of another tenant. Then `webhook_url` is null."""


class TaskDeadLetterPage(_ResponseBody, frozen=True, kw_only=True):
    dead_letters: tuple[TaskDeadLetterView, ...]
    next: str | None


class TaskExchangeView(_ResponseBody, frozen=True, kw_only=True):
    """Request and response of one attempt. Secrets are redacted, and bodies are limited in size."""

    attempt_number: int
    started_at: datetime
    completed_at: datetime
    request: dict[str, Any] | None
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    timings: dict[str, float | None] = {}
    reused_connection: bool = False
    redacted: bool | UnsetType = UNSET
    """True if the caller is an operator of another tenant. Then `request` and `response` are null."""


class TaskExchangesView(_ResponseBody, frozen=True, kw_only=True):
    execution: TaskExecutionView
    exchanges: tuple[TaskExchangeView, ...]


class TaskView(_ResponseBody, frozen=True, kw_only=True):
    id: str
    name: str | None
    type: TaskType
    status: TaskStatus
    payload: dict[str, Any] | None
    scheduled_at: datetime | None
    cron_expression: str | None
    interval: str | None
    timezone: str | None
    end_date: datetime | None
    retry: TaskRetry
    timeout_seconds: float
    ordered: bool = False
    ordering_key: str | None = None
    next_execution: datetime | None
    created_at: datetime
    updated_at: datetime
    stopped_because: str | UnsetType = UNSET
    """Reason why the task stopped, such as a receiver that wants no more calls. PATCH its status to SCHEDULED to resume it."""
    executions: tuple[TaskExecutionView, ...] | UnsetType = UNSET
    redacted: bool | UnsetType = UNSET
    """True if the caller is an operator of another tenant. Then `payload` is null."""


class Pagination(_ResponseBody, frozen=True, kw_only=True):
    page: int
    limit: int
    total: int
    pages: int
    total_is_least: bool | UnsetType = UNSET
    """True if there are at least `total` tasks, and possibly more than can be paged through."""


class TaskList(_ResponseBody, frozen=True, kw_only=True):
    tasks: tuple[TaskView, ...]
    pagination: Pagination


class TaskExecutionList(_ResponseBody, frozen=True, kw_only=True):
    executions: tuple[TaskExecutionView, ...]
