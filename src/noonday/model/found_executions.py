"""Executions of all jobs of a tenant, as a search finds them."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from noonday.model.execution import Execution
from noonday.model.ids import ExecutionId


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of the executions of all jobs. None matches every value."""

    job_id: str | None = None
    id_prefix: str | None = None
    """The beginning of the id, as `is_id_prefix` allows it."""
    state: str | None = None
    pool: str | None = None
    handler: str | None = None
    tag: str | None = None
    """Tag that the job has at present."""
    worker: str | None = None
    since_ms: int | None = None
    """Earliest nominal time, inclusive."""
    until_ms: int | None = None
    """Latest nominal time, exclusive."""
    late_over_ms: int | None = None
    """The first attempt started more than this after it was due, or has not started until now."""
    took_over_ms: int | None = None
    """The latest attempt took more than this, or runs for longer."""


class FoundExecution(msgspec.Struct, frozen=True):
    """An execution without progress, result and transitions, and the present name of its job."""

    execution: Execution
    job_name: str | None = None


class GroupedBy(StrEnum):
    """What the executions of a group have in common."""

    WAITING_FOR = "waitingFor"
    POOL = "pool"
    HANDLER = "handler"


class ExecutionGroup(msgspec.Struct, frozen=True):
    """Examined executions with a common pool or handler, or that wait in the same way."""

    name: str
    """The pool or the handler."""
    oldest: ExecutionId
    """The execution with the earliest nominal time."""
    count: int


class GroupedExecutions(NamedTuple):
    groups: list[ExecutionGroup]
    is_least: bool
    """True if there may be executions that were not examined."""


class FoundPage(NamedTuple):
    """A page of found executions."""

    found: list[FoundExecution]
    next: str | None
    """Cursor of the next page. It may be set although this page is not full, or even empty."""
