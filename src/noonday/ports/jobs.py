"""The store as intake uses it: jobs, snapshots of them, and the changes that are decided from a snapshot."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

import msgspec

from noonday.model.execution import OPEN, Cause, State
from noonday.model.firing import Decision, Entry
from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId
from noonday.model.job import Job


class Fire(msgspec.Struct, frozen=True, array_like=True):
    """A job's fire row on the timeline. While the job has nothing to fire, the row stays without a due time."""

    nominal_ms: int
    """The next nominal time. All earlier occurrences are decided."""
    due_ms: int | None
    runs_left: int | None = None


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """An execution as it is stored. `progress` and `result` are ciphertext."""

    id: ExecutionId
    job_id: JobId
    tenant: TenantId
    nominal_ms: int
    due_ms: int
    """The due time of the first dispatch."""
    state: State
    attempt: int
    dispatch: int
    revision: int
    cause: Cause
    pool: str
    handler: str
    lane: int
    created_ms: int
    fired_ms: int | None = None
    """When the present dispatch was fired. None while the execution waits on the timeline or is buffered."""
    buffered: int = 0
    """1 if the execution waits for an earlier open one to close. It has no row on the timeline."""
    watch: int = 0
    """WATCH_OVERLAP, WATCH_KEY: closing this execution looks for others that wait for it."""
    slots: tuple[str, ...] = ()
    """The slots that the execution occupies while it is dispatched: a concurrency key, and caps of its tenant and its pool."""
    waits_until_ms: int | None = None
    """The due time of its dispatch row on the timeline. None if it has no such row, or one without a due time."""
    worker_id: WorkerId | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    cancel: str | None = None
    """The reason of its revocation. None if it is not revoked."""
    failure: str | None = None
    progress: bytes | None = None
    result: bytes | None = None
    retry_of: ExecutionId | None = None
    transitions: str = ""
    """Comma-separated JSON arrays [state, at_ms, worker or null, reason or null], one for each transition. Append-only."""
    suspended_until_ms: int | None = None
    """The former due time of a dispatch row that is suspended, and so has none."""

    @property
    def early(self) -> bool:
        """Whether the execution is dispatched and not known to have started."""
        return self.state is State.PENDING and self.fired_ms is not None


class Scope(IntEnum):
    """Which of a job's executions a snapshot contains. Each scope includes the ones before it."""

    NAMED = 0
    """The named executions and the first few open ones: enough to know whether any other is open or buffered."""
    UNBUFFERED = 1
    """Every open execution that is not buffered."""
    OPEN = 2
    """Every open execution."""


class Unread(Exception):
    """Raised by a decision that needs more than its snapshot contains. The store reads more and decides again."""

    def __init__(
        self, *, scope: Scope = Scope.NAMED, ids: Sequence[ExecutionId] = (), exist: Sequence[ExecutionId] = ()
    ):
        """`ids` are executions to read. `exist` are executions of which only the existence matters."""
        super().__init__(scope, ids, exist)
        self.scope = scope
        self.ids = tuple(ids)
        self.exist = tuple(exist)


class Read(msgspec.Struct, frozen=True):
    """Which of a job's executions were read for a snapshot."""

    scope: Scope = Scope.NAMED
    ids: frozenset[ExecutionId] = frozenset()
    looked_up: frozenset[ExecutionId] = frozenset()
    """Executions whose existence was looked up."""
    existing: frozenset[ExecutionId] = frozenset()
    """The executions in `looked_up` that exist."""

    def with_existing(self, ids: Iterable[ExecutionId], existing: Iterable[ExecutionId]) -> "Read":
        return msgspec.structs.replace(
            self, looked_up=self.looked_up.union(ids), existing=self.existing.union(existing)
        )

    def reaching(self, scope: Scope, ids: Iterable[ExecutionId]) -> "Read":
        return msgspec.structs.replace(self, scope=max(self.scope, scope), ids=self.ids.union(ids))


class Snapshot(msgspec.Struct, frozen=True):
    """A locked job with its fire row and the executions that the decision needs.

    If `read` is None, `executions` has all executions of the job. Otherwise, access to one that was not read raises Unread.
    """

    job: Job
    fire: Fire | None
    executions: tuple[Execution, ...] = ()
    """In order of their ids."""
    read: Read | None = None

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
            raise Unread(scope=scope)
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
            raise Unread(ids=sorted(unread))

    def existing(self, ids: Sequence[ExecutionId]) -> frozenset[ExecutionId]:
        """Return which of these executions exist. Raises Unread."""
        if self.read is None:
            return frozenset(e.id for e in self.executions).intersection(ids)
        if unknown := [execution for execution in ids if execution not in self.read.looked_up]:
            raise Unread(exist=unknown)
        return self.read.existing.intersection(ids)


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


EVERY_TENANT = TenantId("")
"""The tenant of an audit entry that concerns all tenants."""


class AuditEntry(msgspec.Struct, frozen=True):
    """One action of a user or operator, for the audit log."""

    tenant: TenantId
    """The tenant that the action concerns. The subject may belong to another tenant."""
    at_ms: int
    subject: str
    action: str
    target: str
    detail: dict[str, object] = {}


class Receipt(msgspec.Struct, frozen=True):
    """The response kept under an Idempotency-Key, written in the transaction of the request that it answers."""

    tenant: TenantId
    key: str
    fingerprint: str
    at_ms: int
    status: int = 0
    body: bytes = b""


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


class Applied(msgspec.Struct, frozen=True):
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


Decide = Callable[[Snapshot], Change]
Upsert = Callable[[Snapshot, Job], Change]


class Jobs(ABC):
    """Create and edit jobs. Each call locks the job's row first, so that decisions about one job never interleave."""

    @abstractmethod
    async def add(
        self,
        jobs: Sequence[NewJob],
        *,
        upsert: Upsert,
        audit: AuditEntry | None,
        seal: Callable[[Sequence[Applied | None]], Receipt] | None,
    ) -> list[Applied | None]:
        """Store new jobs in one transaction, in order.

        Returns None for each job that was added. A job whose `unique_key` its tenant already uses is not added: `upsert`
        decides how the existing job changes, and the result of that change is returned in its position. `seal` makes the
        receipt from the results. Raises Conflict if a receipt with the same key exists by then.
        """

    @abstractmethod
    async def edit(
        self,
        tenant: TenantId,
        job_id: JobId,
        decide: Decide,
        *,
        show: Sequence[ExecutionId] = (),
        seal: Callable[[Applied], Receipt] | None = None,
    ) -> Applied:
        """Lock the job, take a snapshot, and apply the change that `decide` returns, in one transaction.

        The first snapshot has the executions `show` and the scope NAMED, so its cost does not depend on the job's history or
        backlog. `decide` is pure. If it raises Unread, it is called again with a larger snapshot. Any other exception of
        `decide` is raised here, and nothing is changed. Raises NotFound.
        """

    @abstractmethod
    async def keep_receipt(self, receipt: Receipt) -> None:
        """Store the receipt of a request that may be repeated without harm. Raises Conflict if the key has a receipt."""

    @abstractmethod
    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None: ...
