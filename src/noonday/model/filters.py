"""Filters of lists."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from noonday.model.job import Dst, JobType, RequestBody, ms_of

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class JobFilter(msgspec.Struct, frozen=True):
    """Filter of a list of jobs. None matches every value."""

    state: str | None = None
    """ACTIVE, PAUSED, COMPLETED, DEAD or CANCELLED."""
    type: str | None = None
    pool: str | None = None
    handler: str | None = None
    name: str | None = None
    tag: str | None = None
    unique_key: str | None = None


class DeadFilterQuery(msgspec.Struct, frozen=True):
    """Filter of a list of dead letters. None matches every value."""

    job_id: str | None = None
    pool: str | None = None
    handler: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    archived: bool = False
    is_task: bool = False
    """True: only dead letters of jobs that have an endpoint."""
    endpoint: str | None = None
    """With `is_task`: the endpoint that the job has at present."""
    error: str | None = None
    """A part of the last error, written `type: message`. ASCII letters match in either case."""


class CallFilter(msgspec.Struct, frozen=True):
    """Filter of a list of executions that call webhooks. None matches every value."""

    job_id: str | None = None
    endpoint: str | None = None
    """The endpoint that the job has at present."""
    state: str | None = None
    since_ms: int | None = None
    """Earliest nominal time, inclusive."""
    until_ms: int | None = None
    """Latest nominal time, exclusive."""


class DeadFilter(RequestBody, frozen=True, kw_only=True):
    """Filter of dead letters. All conditions must match; without conditions, all dead letters."""

    job_id: str | None = None
    pool: str | None = None
    handler: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    archived: bool = False


class PreviewRequest(RequestBody, frozen=True, kw_only=True):
    """A schedule whose next times are shown, without creating a job."""

    type: JobType = JobType.CRON
    schedule: str | None = None
    timezone: str | None = None
    dst: Dst = Dst()
    every_sec: float | None = None
    phase_sec: float = 0
    from_: Instant | None = msgspec.field(default=None, name="from")
    """Show times after this instant. Default: now."""
    count: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10


def dead_query(where: DeadFilter) -> DeadFilterQuery:
    return DeadFilterQuery(
        where.job_id, where.pool, where.handler, ms_of(where.since), ms_of(where.until), where.archived
    )


class RunRequest(RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/jobs/{id}/trigger`, which may be omitted."""

    payload: Annotated[Any, msgspec.Meta(description="Payload of this run. Without it, the job's own")] | UnsetType = (
        UNSET
    )
    force: bool = False
    """Run although the overlap policy would skip or delay the run. Open executions continue."""


class PauseRequest(RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/jobs/{id}/pause`. Without a body, the job is paused until a user resumes it."""

    until: Instant | None = None
    """When the job is resumed, at most 10 years ahead."""


class MoveRequest(RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/jobs/{id}/move`."""

    at: Instant
    """Time of the occurrence to move."""
    to: Instant
    """Time at which it fires instead, at most 10 years ahead."""
    reason: str | None = None
    """Reason, for people. The decision shows it together with who moved the occurrence."""


class SkipRequest(RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/jobs/{id}/skip`: exactly one of `at` and `next`."""

    at: Instant | None = None
    """Nominal time of the occurrence to skip."""
    next: int | None = None
    """Number of occurrences to skip, from the next one that is not skipped yet."""
    reason: str | None = None
    """Reason, for people. The decision shows it together with who skipped the occurrence."""
