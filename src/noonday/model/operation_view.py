"""Wire types of bulk operations, and of groups of dead letters and executions."""

from datetime import datetime
from typing import Any

import msgspec

from noonday.model.view import Page


class _View(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class OperationView(_View, frozen=True, kw_only=True):
    """A bulk operation and its progress."""

    id: str
    kind: str
    filter: dict[str, Any]
    until: datetime
    state: str
    """RUNNING, STOPPED or DONE."""
    total: int
    """Number of items that matched when the operation was created."""
    total_is_least: bool
    """True if more items may match: not all were examined."""
    done: int
    skipped: int
    """Items that no longer needed the change, or did not allow it."""
    failed: int
    left: int | None
    """Null if `total` is a lower bound."""
    runs_ended: int
    """Runs that the operation started, and whose first attempt has ended."""
    runs_failed: int
    sample_size: int
    rate_per_sec: float
    stop_above_percent: int
    stopped_because: str | None
    errors: tuple[str, ...]
    by: str
    created_at: datetime
    ended_at: datetime | None


class OperationPage(Page, frozen=True, kw_only=True):
    operations: tuple[OperationView, ...]


class AffectedView(_View, frozen=True, kw_only=True):
    """Number of items that a change concerns."""

    count: int
    is_least: bool


class SampleView(_View, frozen=True, kw_only=True):
    """An item that an operation would change, with its name or its error."""

    id: str
    text: str


class OperationPreview(_View, frozen=True, kw_only=True):
    """What an operation would change. Send its `until` with the operation, so that it changes nothing newer."""

    kind: str
    filter: dict[str, Any]
    until: datetime
    affected: AffectedView
    samples: tuple[SampleView, ...]


class DeadGroupView(_View, frozen=True, kw_only=True):
    """Dead letters with the same error."""

    fingerprint: str
    message: str
    """The error without what differs: quoted texts, numbers and ids."""
    count: int
    is_least: bool
    jobs: int
    """Number of jobs that have such dead letters."""
    first_at: datetime
    last_at: datetime
    per_hour: float
    sample: str
    """The execution that failed last."""


class DeadGroupList(_View, frozen=True, kw_only=True):
    groups: tuple[DeadGroupView, ...]
    is_least: bool
    """True if older dead letters were not examined."""


class ExecutionGroupView(_View, frozen=True, kw_only=True):
    """Executions with the same pool, handler, or reason to wait."""

    key: str
    text: str
    count: int
    is_least: bool
    oldest_at: datetime


class ExecutionGroupList(_View, frozen=True, kw_only=True):
    groups: tuple[ExecutionGroupView, ...]
    is_least: bool
    """True if older executions were not examined."""
