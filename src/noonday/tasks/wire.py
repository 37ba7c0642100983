"""The tasks API as values: what may be said, and what is answered. Names are snake_case here."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from noonday.intake.filters import Instant
from noonday.model.execution import State
from noonday.model.pool import WEBHOOKS_POOL
from noonday.model.retry import Backoff
from noonday.webhooks.methods import Method

POOL, HANDLER = WEBHOOKS_POOL, "webhook.call"
DEFAULT_TIMEOUT_SEC = 30.0
DEFAULT_ATTEMPTS, MOST_ATTEMPTS = 5, 100
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
DAYS_LONG_MS = (
    *(5_000, 5 * _MINUTE_MS, 30 * _MINUTE_MS),
    *(hours * _HOUR_MS for hours in (2, 5, 10, 14, 20, 24)),
)
"""The waits that Standard Webhooks proposes: ten attempts over three days."""


class TaskType(StrEnum):
    ONE_TIME = "ONE_TIME"
    RECURRING = "RECURRING"


class TaskStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    """Something of it is to come, and nothing runs."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    """It was to run once and did not succeed, or it was stopped."""


class WishedStatus(StrEnum):
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
"""How the engine calls what an execution of a task is: for a filter by status."""
STATUS_NAMES = {state.name: status.value for status, state in STATE_OF.items()}


class _Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class TaskPayload(_Said, frozen=True, kw_only=True):
    """The call that is made."""

    webhook_url: str
    method: Method = Method.POST
    headers: dict[str, str] = {}
    body: Any = None
    """Any JSON; null is no body."""


class TaskRetry(_Said, frozen=True, kw_only=True):
    """How often a call is tried, and how long in between. Waits are upper bounds, from which the real one is drawn."""

    max_attempts: int | None = None
    """Unsaid: 5, or as many as the list has waits for."""
    backoff: Backoff | None = None
    """Unsaid: LIST if there are `delays_ms`, else EXPONENTIAL. LIST without `delays_ms` takes three days."""
    initial_delay_ms: int | None = None
    delays_ms: tuple[int, ...] | None = None
    statuses: tuple[int, ...] | None = None
    """Statuses after which a call is tried again; unsaid: 408, 425, 429 and 500 to 599. Without an answer it always is."""


class TaskSpec(_Said, frozen=True, kw_only=True):
    """What `POST /v1/tasks` takes. ONE_TIME needs `scheduled_at`; RECURRING needs `cron_expression` or `interval`."""

    type: TaskType
    payload: TaskPayload
    name: str | None = None
    scheduled_at: datetime | None = None
    cron_expression: str | None = None
    interval: str | None = None
    timezone: str | None = None
    """Where the schedule is read, and `scheduled_at` and `end_date` if they are without an offset."""
    end_date: datetime | None = None
    retry: TaskRetry = TaskRetry()
    timeout_seconds: float = DEFAULT_TIMEOUT_SEC
    ordered: bool = False
    """One call at a time, in the order of their times, each after all attempts of the one before it. RECURRING only."""
    ordering_key: str | None = None
    """The same of all tasks that say the same key: calls of different tasks in order."""


class TaskPatch(_Said, frozen=True, kw_only=True):
    """What `PATCH /v1/tasks/{id}` takes: only what is to change. A new cron expression ends an interval, and vice versa."""

    status: WishedStatus | UnsetType = UNSET
    """Said alone."""
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


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    pass


class TaskAttemptView(_Answer, frozen=True, kw_only=True):
    attempt_number: int
    status: str
    started_at: datetime | None
    completed_at: datetime | None
    error_message: str | None


class TaskExecutionView(_Answer, frozen=True, kw_only=True):
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
    """The execution that this one makes the call of once more."""
    attempts: tuple[TaskAttemptView, ...] = ()


UrlOfEndpoint = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\]+$",
        max_length=2_000,
        description="A URL, of which scheme, host and port count: whom the task calls at present",
    ),
]


class ResolvedBy(StrEnum):
    """How somebody dealt with a dead letter."""

    RETRY = "RETRY"
    ARCHIVE = "ARCHIVE"


class TaskCallView(TaskExecutionView, frozen=True, kw_only=True):
    """An execution among those of all tasks."""

    task_name: str | None
    webhook_url: str | None
    resolved_by: ResolvedBy | None
    """Of one that FAILED: its dead letter was dealt with."""
    retried_as: str | None
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads it: `webhook_url` is null."""


class TaskCallPage(_Answer, frozen=True, kw_only=True):
    """A page may be short, or even empty, although there is a `next`: so many executions are looked at, and no more."""

    executions: tuple[TaskCallView, ...]
    next: str | None


class ResentView(TaskExecutionView, frozen=True, kw_only=True):
    with_present_payload: bool
    """The task was changed since, and what it said then is not kept any more: the call is made as the task is now."""


class ResendRequest(_Said, frozen=True, kw_only=True):
    """Executions of any tasks whose calls are to be made once more."""

    ids: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=100)], ...], msgspec.Meta(min_length=1, max_length=500)]
    replay_id: Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,40}$")] | None = None
    """Names a replay: under one name nothing is sent again twice, whatever Idempotency-Key it comes with."""


class ResendResult(_Answer, frozen=True, kw_only=True):
    id: str
    resent_as: str | None = None
    there_already: bool = False
    """It was sent again under this `replay_id` before, or is itself what that has made: nothing was done."""
    with_present_payload: bool = False
    problem: str | None = None
    """Why it was not sent again."""


class ResendList(_Answer, frozen=True, kw_only=True):
    results: tuple[ResendResult, ...]
    """In the order of the request, each id once."""


class TaskDeadFilter(_Said, frozen=True, kw_only=True):
    """Which dead letters of tasks are meant: those that meet every condition given; without any, all."""

    task_id: str | None = None
    endpoint: UrlOfEndpoint | None = None
    error: str | None = None
    """Part of the last error, such as `TIMEOUT` or `answered 503`."""
    since: Instant | None = None
    until: Instant | None = None
    archived: bool = False


class TaskDeadLetterView(_Answer, frozen=True, kw_only=True):
    id: str
    """Of the execution."""
    task_id: str
    task_name: str | None
    webhook_url: str | None
    error_type: str | None
    error_message: str | None
    attempts: int
    failed_at: datetime
    resolved_at: datetime | None
    """Unknown also of one that was dealt with before this was kept."""
    resolved_by: ResolvedBy | None
    retried_as: str | None
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads it: `webhook_url` is null."""


class TaskDeadLetterPage(_Answer, frozen=True, kw_only=True):
    dead_letters: tuple[TaskDeadLetterView, ...]
    next: str | None


class TaskExchangeView(_Answer, frozen=True, kw_only=True):
    """What was sent at one attempt and what came back. Secrets are redacted, and bodies have a cap."""

    attempt_number: int
    started_at: datetime
    completed_at: datetime
    request: dict[str, Any] | None
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    timings: dict[str, float | None] = {}
    reused_connection: bool = False
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads it: `request` and `response` are null."""


class TaskExchangesView(_Answer, frozen=True, kw_only=True):
    execution: TaskExecutionView
    exchanges: tuple[TaskExchangeView, ...]


class TaskView(_Answer, frozen=True, kw_only=True):
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
    """Why it is FAILED, if it was stopped: the receiver wants no more calls. PATCH it to SCHEDULED to go on."""
    executions: tuple[TaskExecutionView, ...] | UnsetType = UNSET
    redacted: bool | UnsetType = UNSET
    """True if an operator of another tenant reads it: `payload` is null."""


class Pagination(_Answer, frozen=True, kw_only=True):
    page: int
    limit: int
    total: int
    pages: int
    total_is_least: bool | UnsetType = UNSET
    """True if there are more than can be paged through."""


class TaskList(_Answer, frozen=True, kw_only=True):
    tasks: tuple[TaskView, ...]
    pagination: Pagination


class TaskExecutionList(_Answer, frozen=True, kw_only=True):
    executions: tuple[TaskExecutionView, ...]
