"""Change of a job: what an edit decides, and what came of it."""

import msgspec

from noonday.model.audit import AuditEntry
from noonday.model.execution import Cause
from noonday.model.firing import Decision, Entry, Fire
from noonday.model.ids import ExecutionId
from noonday.model.job import Job
from noonday.model.snapshot import Snapshot


class NewExecution(msgspec.Struct, frozen=True):
    """An execution that a decision creates rather than a fire: a trigger, a backfill, the retry of a dead letter."""

    id: ExecutionId
    nominal_ms: int
    due_ms: int
    cause: Cause
    buffered: bool = False
    retry_of: ExecutionId | None = None
    revision: int | None = None
    """The revision of the job to run, which must still be stored. None means the present one."""
    payload: bytes | None = None
    """Ciphertext of the payload to run it with. None means the payload of the job, or that of `retry_of`."""


class Change(msgspec.Struct, frozen=True):
    """Everything that one decision changes of a job. The store applies all of it or nothing."""

    job: Job | None = None
    """The job's new row. The row that it replaces is kept if its revision differs."""
    fire: Fire | None = None
    """The new fire row. None leaves the present one."""
    decisions: tuple[Decision, ...] = ()
    executions: tuple[NewExecution, ...] = ()
    """Executions to create. An execution that exists already is not changed."""
    rebase: tuple[ExecutionId, ...] = ()
    """Waiting executions that have not started and continue under the new definition."""
    suspend: tuple[ExecutionId, ...] = ()
    """Executions whose dispatch rows lose their due time."""
    release: tuple[tuple[ExecutionId, int], ...] = ()
    """(execution, due_ms): suspended dispatch rows and the due time they get."""
    cancel: tuple[tuple[ExecutionId, str], ...] = ()
    """(execution, reason): executions to end. Those that are not dispatched are closed at once, the others are revoked."""
    dead: tuple[tuple[ExecutionId, ExecutionId | None], ...] = ()
    """Resolved dead letters: (execution, the execution that retries it, or None if it is archived)."""
    audit: AuditEntry | None = None

    @property
    def named(self) -> tuple[ExecutionId, ...]:
        """The existing executions that this changes."""
        return (
            *(execution for execution, _ in self.cancel),
            *self.rebase,
            *self.suspend,
            *(execution for execution, _ in self.release),
        )


class ChangeResult(msgspec.Struct, frozen=True):
    """The result of a change: the job afterwards, entries for the hot index, revocations to signal."""

    after: Snapshot
    """The job after the change, with the executions to show and the first few open ones."""
    entries: tuple[Entry, ...]
    revocations: tuple[tuple[str, ExecutionId, int, str], ...]
    """(pool, execution, dispatch, reason) of dispatched executions that are revoked."""
    fenced: tuple[str, ...] = ()
    """Pools to fence for this job: no dispatch of it that was fired before the change may start."""
    created: int = 0
    """Number of executions that were created."""


class NewJob(msgspec.Struct, frozen=True):
    """A job to store, with its first fire row."""

    job: Job
    fire: Fire | None
