"""Rows that queries return."""

from typing import NamedTuple

import msgspec

from noonday.model.execution import Execution
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId
from noonday.model.job import Job, JobState
from noonday.model.message import HandlerInfo
from noonday.model.view import PoolSettings


class EntriesAhead(NamedTuple):
    """Counts of the entries that are due before a mark of the timeline."""

    entries: int
    tenants: int
    """Number of tenants that the entries belong to."""
    is_least: bool
    """True if the counts are lower bounds: not all rows were examined."""


class JobRow(msgspec.Struct, frozen=True):
    """A job with its fire row."""

    job: Job
    fire: Fire | None
    open: bool
    """True if the job has an open execution."""
    payload_bytes: int = 0
    """Size of the payload's ciphertext. Set in lists only, which have no payloads."""
    died: bool = False
    """True if the last execution of the job is a dead letter that was not retried."""


class WebhookRow(msgspec.Struct, frozen=True):
    """A job that calls a webhook, with its latest execution."""

    row: JobRow
    running: bool
    """True if an execution of the job is running."""
    latest: Execution | None
    """Execution with the latest nominal time, of a recurring job; else the open execution, or the one that ended last."""


class DeadLetter(msgspec.Struct, frozen=True):
    """An execution that is out of attempts, and how it was resolved."""

    execution: Execution
    died_ms: int
    archived: bool
    retried_as: ExecutionId | None
    resolved_ms: int | None = None
    """Time when the dead letter was archived or retried."""
    job_name: str | None = None


class KnownCall(msgspec.Struct, frozen=True):
    """An execution that calls a webhook, and how its dead letter was resolved, if it has one."""

    execution: Execution
    died_ms: int | None = None
    archived: bool = False
    retried_as: ExecutionId | None = None
    resolved_ms: int | None = None


class CallPage(NamedTuple):
    """A page of executions that call webhooks."""

    calls: list[KnownCall]
    next: str | None
    """Cursor of the next page. It may be set although this page is not full, or even empty."""


class Definition(msgspec.Struct, frozen=True):
    """A job's definition at a revision, or its present definition if that revision is no longer stored."""

    name: str | None
    state: JobState
    pool: str
    handler: str
    endpoint: str | None
    revision: int
    payload: bytes | None


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker with its running executions."""

    id: str
    host: str
    pid: int
    concurrency: dict[str, int]
    started_ms: int
    seen_ms: int
    state: str
    stuck: tuple[str, ...]
    running: tuple[Execution, ...] = ()


class PoolRow(msgspec.Struct, frozen=True):
    """A pool with its settings, handlers and load."""

    name: str
    settings: PoolSettings
    handlers: tuple[tuple[HandlerInfo, int], ...]
    """(handler, number of live workers that have it)."""
    workers: int
    capacity: int
    queued: int
    running: int
    due: int


def call_page(calls: list[KnownCall], limit: int, examined_until: str | None) -> CallPage:
    """Return a page of `limit` calls from up to `limit` + 1 that were read.

    `examined_until` is the last execution that was examined, if more may follow it.
    """
    if len(calls) > limit:
        return CallPage(calls[:limit], calls[limit - 1].execution.id)
    return CallPage(calls, examined_until)
