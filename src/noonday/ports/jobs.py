"""Jobs and what changes them: the intake's side of the store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

import msgspec

from noonday.model.execution import OPEN, Cause, State
from noonday.model.firing import Decision, Entry
from noonday.model.ids import ExecutionId, JobId, TenantId, WorkerId
from noonday.model.job import Job


class Fire(msgspec.Struct, frozen=True, array_like=True):
    """A job's fire row on the timeline. It stays, without a due time, while nothing is to fire."""

    nominal_ms: int
    """Everything before it is decided."""
    due_ms: int | None
    runs_left: int | None = None


class Execution(msgspec.Struct, frozen=True, array_like=True):
    """An execution as the store has it. `progress` and `result` are ciphertext."""

    id: ExecutionId
    job_id: JobId
    tenant: TenantId
    nominal_ms: int
    due_ms: int
    """The instant of its first dispatch."""
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
    """When the present dispatch was handed out; None while it waits on the timeline or is buffered."""
    buffered: int = 0
    """1: it waits for the open execution before it, and has no row on the timeline."""
    watch: int = 0
    """WATCH_OVERLAP, WATCH_KEY: whoever closes it looks for what waits on it."""
    slots: tuple[str, ...] = ()
    """What it counts against while it is handed out: a concurrency key, and caps of its tenant and its pool."""
    waits_until_ms: int | None = None
    """The due time of its dispatch row on the timeline, if it has one."""
    worker_id: WorkerId | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    cancel: str | None = None
    """The wish to end it, with its reason."""
    failure: str | None = None
    progress: bytes | None = None
    result: bytes | None = None
    retry_of: ExecutionId | None = None
    transitions: str = ""
    """Each transition a JSON array [state, at_ms, worker or null, reason or null], comma separated, only ever appended to."""
    suspended_until_ms: int | None = None
    """If its dispatch row has no due time: the time it would have waited for."""

    @property
    def early(self) -> bool:
        """Handed out, not known to have started."""
        return self.state is State.PENDING and self.fired_ms is not None


class Scope(IntEnum):
    """How many of a job's executions a snapshot has. Each scope includes the ones before it."""

    NAMED = 0
    """Those that were named, and the first few open ones: enough to tell whether any other is open, or buffered."""
    UNBUFFERED = 1
    """Every open execution that is not buffered."""
    OPEN = 2
    """Every open execution."""


class Unread(Exception):
    """A decision needs more than its snapshot has. The store reads that and decides again."""

    def __init__(
        self, *, scope: Scope = Scope.NAMED, ids: Sequence[ExecutionId] = (), exist: Sequence[ExecutionId] = ()
    ):
        """`ids`: executions to read; `exist`: executions of which only the existence matters."""
        super().__init__(scope, ids, exist)
        self.scope = scope
        self.ids = tuple(ids)
        self.exist = tuple(exist)


class Read(msgspec.Struct, frozen=True):
    """How much of a job's executions was read."""

    scope: Scope = Scope.NAMED
    ids: frozenset[ExecutionId] = frozenset()
    looked_up: frozenset[ExecutionId] = frozenset()
    """Executions whose existence was looked up."""
    existing: frozenset[ExecutionId] = frozenset()
    """Those of `looked_up` that exist."""

    def with_existing(self, ids: Iterable[ExecutionId], existing: Iterable[ExecutionId]) -> "Read":
        return msgspec.structs.replace(
            self, looked_up=self.looked_up.union(ids), existing=self.existing.union(existing)
        )

    def reaching(self, scope: Scope, ids: Iterable[ExecutionId]) -> "Read":
        return msgspec.structs.replace(self, scope=max(self.scope, scope), ids=self.ids.union(ids))


class Snapshot(msgspec.Struct, frozen=True):
    """A job under its lock: as it is, what it waits for, and the executions that the decision asked for.

    Without `read`, `executions` are all there are. With it, asking for more raises Unread.
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
        """The open executions that were read: all of its scope, and one more than were named of those outside of it."""
        return tuple(e for e in self.executions if e.state in OPEN)

    def open_in(self, scope: Scope) -> tuple[Execution, ...]:
        """Every open execution of a scope. Raises Unread."""
        if self.read is not None and self.read.scope < scope:
            raise Unread(scope=scope)
        return tuple(e for e in self.known_open if scope is Scope.OPEN or not e.buffered)

    def find(self, execution: ExecutionId) -> Execution | None:
        """Raises Unread."""
        self.require([execution])
        return next((e for e in self.executions if e.id == execution), None)

    def require(self, ids: Iterable[ExecutionId]) -> None:
        """Raises Unread if one of these executions was not read."""
        if self.read is None:
            return
        wanted = set(ids) - self.read.ids
        if self.read.scope is not Scope.NAMED:
            wanted -= {e.id for e in self.executions}
        if wanted:
            raise Unread(ids=sorted(wanted))

    def existing(self, ids: Sequence[ExecutionId]) -> frozenset[ExecutionId]:
        """Which of these executions exist. Raises Unread."""
        if self.read is None:
            return frozenset(e.id for e in self.executions).intersection(ids)
        if unknown := [execution for execution in ids if execution not in self.read.looked_up]:
            raise Unread(exist=unknown)
        return self.read.existing.intersection(ids)


class NewExecution(msgspec.Struct, frozen=True):
    """An execution made by a decision rather than by a fire: a trigger, a backfill, a dead letter tried again."""

    id: ExecutionId
    nominal_ms: int
    due_ms: int
    cause: Cause
    buffered: bool = False
    retry_of: ExecutionId | None = None
    revision: int | None = None
    """Of the job, which must be kept still; None: the present one."""


EVERY_TENANT = TenantId("")
"""The tenant of an audit entry that concerns all of them."""


class AuditEntry(msgspec.Struct, frozen=True):
    tenant: TenantId
    """Whom it concerns, which need not be the tenant of whoever did it."""
    at_ms: int
    subject: str
    action: str
    target: str
    detail: dict[str, object] = {}


class Receipt(msgspec.Struct, frozen=True):
    """The answer kept under an Idempotency-Key, written in the transaction that did what it answers."""

    tenant: TenantId
    key: str
    fingerprint: str
    at_ms: int
    status: int = 0
    body: bytes = b""


class Change(msgspec.Struct, frozen=True):
    """Everything one decision does to a job, applied whole or not at all."""

    job: Job | None = None
    """The job's new row; the row it replaces is kept if its revision differs."""
    fire: Fire | None = None
    """The new fire row; None leaves the present one."""
    decisions: tuple[Decision, ...] = ()
    executions: tuple[NewExecution, ...] = ()
    """Those that exist already are left alone."""
    rebase: tuple[ExecutionId, ...] = ()
    """Executions that wait and have not started: they go on under the new definition."""
    suspend: tuple[ExecutionId, ...] = ()
    """Executions whose dispatch rows shall wait without a due time."""
    release: tuple[tuple[ExecutionId, int], ...] = ()
    """Dispatch rows that were held without a due time, and the time they get."""
    cancel: tuple[tuple[ExecutionId, str], ...] = ()
    """Executions to end, with the reason: closed at once if nobody holds them, asked to end otherwise."""
    dead: tuple[tuple[ExecutionId, ExecutionId | None], ...] = ()
    """Dead letters dealt with: (execution, the one that retries it or None if archived)."""
    audit: AuditEntry | None = None

    @property
    def named(self) -> tuple[ExecutionId, ...]:
        """Executions that exist and that this changes."""
        return (
            *(execution for execution, _ in self.cancel),
            *self.rebase,
            *self.suspend,
            *(execution for execution, _ in self.release),
        )


class Applied(msgspec.Struct, frozen=True):
    """What a change did, what to place on the hot index, which flags to raise."""

    after: Snapshot
    """With the executions that were to be shown, and the first few open ones."""
    entries: tuple[Entry, ...]
    revocations: tuple[tuple[str, ExecutionId, int, str], ...]
    """(pool, execution, dispatch, reason) of those handed out that are asked to end."""
    fenced: tuple[str, ...] = ()
    """Pools where nothing of this job that was fired before may start any more."""
    created: int = 0
    """How many executions did not exist before."""


class NewJob(msgspec.Struct, frozen=True):
    job: Job
    fire: Fire | None


Decide = Callable[[Snapshot], Change]
Upsert = Callable[[Snapshot, Job], Change]


class Jobs(ABC):
    """Every call on a job locks the job's row first, so that decisions about one job never interleave."""

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

        A job whose `unique_key` its tenant already uses is not added: `upsert` decides how the present job changes, and the
        answer at its place says what that did; for a plain addition the answer is None. `seal` makes the receipt from the
        answers; raises Conflict if a receipt with the same key exists by then.
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
        """Take a snapshot of the job under its lock, let `decide` choose, and apply the change. All in one transaction.

        The first snapshot has the executions `show` and the scope NAMED, so it costs the same whatever the job's history and
        backlog. `decide` is pure. If it raises Unread, it is called again with a snapshot that has more; whatever else it
        raises is raised here, and nothing is changed. Raises NotFound.
        """

    @abstractmethod
    async def keep_receipt(self, receipt: Receipt) -> None:
        """Keep the answer of something that may be done twice without harm. Raises Conflict if the key has one."""

    @abstractmethod
    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None: ...
