"""Snapshot of a job: what an edit is decided from."""

from collections.abc import Iterable, Sequence
from enum import IntEnum

import msgspec

from noonday.model.execution import OPEN, Execution
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId
from noonday.model.job import Job


class Scope(IntEnum):
    """The executions of a job that a snapshot contains. Each scope includes the ones before it."""

    NAMED = 0
    """The named executions and the first few open ones: enough to know whether any other is open or buffered."""
    UNBUFFERED = 1
    """Every open execution that is not buffered."""
    OPEN = 2
    """Every open execution."""


class SnapshotIncomplete(Exception):
    """Raised by a decision that needs more than its snapshot contains. The store reads more and decides again."""

    def __init__(
        self, *, scope: Scope = Scope.NAMED, ids: Sequence[ExecutionId] = (), exist: Sequence[ExecutionId] = ()
    ):
        """`ids` are executions to read. `exist` are executions of which only the existence matters."""
        super().__init__(scope, ids, exist)
        self.scope = scope
        self.ids = tuple(ids)
        self.exist = tuple(exist)


class ReadExecutions(msgspec.Struct, frozen=True):
    """The executions of a job that were read for a snapshot."""

    scope: Scope = Scope.NAMED
    ids: frozenset[ExecutionId] = frozenset()
    looked_up: frozenset[ExecutionId] = frozenset()
    """Executions whose existence was looked up."""
    existing: frozenset[ExecutionId] = frozenset()
    """The executions in `looked_up` that exist."""

    def with_existing(self, ids: Iterable[ExecutionId], existing: Iterable[ExecutionId]) -> "ReadExecutions":
        return msgspec.structs.replace(
            self, looked_up=self.looked_up.union(ids), existing=self.existing.union(existing)
        )

    def reaching(self, scope: Scope, ids: Iterable[ExecutionId]) -> "ReadExecutions":
        return msgspec.structs.replace(self, scope=max(self.scope, scope), ids=self.ids.union(ids))


class Snapshot(msgspec.Struct, frozen=True):
    """A locked job with its fire row and the executions that the decision needs.

    If `read` is None, `executions` has all executions of the job. Otherwise, access to one that was not read raises Unread.
    """

    job: Job
    fire: Fire | None
    executions: tuple[Execution, ...] = ()
    """Executions in the order of their ids."""
    died: bool = False
    """True if the last execution of the job is a dead letter that was not retried."""
    read: ReadExecutions | None = None

    @property
    def ended_as(self) -> str:
        """The state of an active job that has nothing to come."""
        return "DEAD" if self.died else "COMPLETED"

    @property
    def has_open(self) -> bool:
        return any(e.state in OPEN for e in self.executions)

    @property
    def has_buffered(self) -> bool:
        return any(e.buffered for e in self.executions)

    @property
    def known_open(self) -> tuple[Execution, ...]:
        """The open executions that were read: all within the scope, and one more than were named of those outside it."""
        return tuple(e for e in self.executions if e.state in OPEN)

    def open_in(self, scope: Scope) -> tuple[Execution, ...]:
        """Return every open execution of a scope. Raises Unread."""
        if self.read is not None and self.read.scope < scope:
            raise SnapshotIncomplete(scope=scope)
        return tuple(e for e in self.known_open if scope is Scope.OPEN or not e.buffered)

    def find(self, execution: ExecutionId) -> Execution | None:
        """Return an execution, or None if the job does not have it. Raises Unread."""
        self.require([execution])
        return next((e for e in self.executions if e.id == execution), None)

    def require(self, ids: Iterable[ExecutionId]) -> None:
        """Raise Unread if one of these executions was not read."""
        if self.read is None:
            return
        unread = set(ids) - self.read.ids
        if self.read.scope is not Scope.NAMED:
            unread -= {e.id for e in self.executions}
        if unread:
            raise SnapshotIncomplete(ids=sorted(unread))

    def existing(self, ids: Sequence[ExecutionId]) -> frozenset[ExecutionId]:
        """Return which of these executions exist. Raises Unread."""
        if self.read is None:
            return frozenset(e.id for e in self.executions).intersection(ids)
        if unknown := [execution for execution in ids if execution not in self.read.looked_up]:
            raise SnapshotIncomplete(exist=unknown)
        return self.read.existing.intersection(ids)
