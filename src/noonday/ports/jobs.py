"""Jobs and what changes them: the intake's side of the store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec

from noonday.model.execution import Cause, State
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
    moves: str = ""
    """Each move a JSON array [state, at_ms, worker or null, reason or null], comma separated, only ever appended to."""
    held_until_ms: int | None = None
    """If its dispatch row has no due time: the time it would have waited for."""

    @property
    def staged(self) -> bool:
        """Handed out, not known to have started."""
        return self.state is State.PENDING and self.fired_ms is not None


class Snapshot(msgspec.Struct, frozen=True):
    """A job under its lock: as it is, what it waits for, and its executions that are open or not older than asked for."""

    job: Job
    fire: Fire | None
    executions: tuple[Execution, ...]

    @property
    def open(self) -> tuple[Execution, ...]:
        return tuple(e for e in self.executions if e.state in (State.PENDING, State.RUNNING))


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
    hold: tuple[ExecutionId, ...] = ()
    """Executions whose dispatch rows shall wait without a due time."""
    release: tuple[tuple[ExecutionId, int], ...] = ()
    """Dispatch rows that were held without a due time, and the time they get."""
    cancel: tuple[tuple[ExecutionId, str], ...] = ()
    """Executions to end, with the reason: closed at once if nobody holds them, asked to end otherwise."""
    dead: tuple[tuple[ExecutionId, ExecutionId | None], ...] = ()
    """Dead letters dealt with: (execution, the one that retries it or None if archived)."""
    audit: AuditEntry | None = None


class Applied(msgspec.Struct, frozen=True):
    """What a change did: the snapshot after it, what to place on the hot index, which flags to raise."""

    after: Snapshot
    entries: tuple[Entry, ...]
    flags: tuple[tuple[str, ExecutionId, int, str], ...]
    """(pool, execution, dispatch, reason) of those handed out that are asked to end."""
    barred: tuple[str, ...] = ()
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
        since_ms: int,
        seal: Callable[[Applied], Receipt] | None = None,
    ) -> Applied:
        """Take a snapshot of the job under its lock, let `decide` choose, and apply the change. All in one transaction.

        The snapshot has the open executions and those with a nominal time not before `since_ms`. `decide` is pure; what it
        raises is raised here and nothing is changed. Raises NotFound.
        """

    @abstractmethod
    async def keep_receipt(self, receipt: Receipt) -> None:
        """Keep the answer of something that may be done twice without harm. Raises Conflict if the key has one."""

    @abstractmethod
    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None: ...
