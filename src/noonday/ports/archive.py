"""Everything that is only looked up: the read side of the store, and the small tables people set."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from noonday.model.firing import Decision
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job, JobState
from noonday.model.message import HandlerInfo
from noonday.model.recent import Figures
from noonday.model.slots import SlotKey
from noonday.model.usage import Used
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.firing import Mark
from noonday.ports.jobs import AuditEntry, Execution, Fire


class JobFilter(msgspec.Struct, frozen=True):
    state: str | None = None
    """ACTIVE, PAUSED, COMPLETED or CANCELLED."""
    type: str | None = None
    pool: str | None = None
    handler: str | None = None
    name: str | None = None
    tag: str | None = None
    unique_key: str | None = None


class Pause(NamedTuple):
    """Nothing of a TENANT, for a POOL, or at all (ALL) is handed out."""

    kind: str
    name: str
    since_ms: int
    subject: str


class Slots(NamedTuple):
    """How many open executions that are handed out count against something, and how many may."""

    used: int
    cap: int | None


class Ahead(NamedTuple):
    """What is due before a mark of the timeline."""

    entries: int
    tenants: int
    """Whose it is: of so many tenants."""
    is_least: bool
    """There may be more: not all was looked at."""


class DeadFilterQuery(msgspec.Struct, frozen=True):
    job_id: str | None = None
    pool: str | None = None
    handler: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    archived: bool = False
    is_task: bool = False
    """Only of jobs that have an endpoint."""
    endpoint: str | None = None
    """With `is_task`: the one that the job has at present."""
    error: str | None = None
    """What the last error, written `type: message`, has in it; letters of ASCII may be large or small."""


class JobRow(msgspec.Struct, frozen=True):
    job: Job
    fire: Fire | None
    open: bool
    """Whether it has an open execution."""
    payload_bytes: int = 0
    """In a list, which has no payloads: how large it is, as ciphertext."""


class WebhookRow(msgspec.Struct, frozen=True):
    """A job that calls a webhook, with what tells how it is doing."""

    row: JobRow
    running: bool
    """Whether an execution of it runs."""
    latest: Execution | None
    """Of a job with a schedule the one with the latest nominal time; of a one-shot the one that is open or else ended last."""


class DeadLetter(msgspec.Struct, frozen=True):
    execution: Execution
    died_ms: int
    archived: bool
    retried_as: ExecutionId | None
    resolved_ms: int | None = None
    """When it was archived, or retried."""
    job_name: str | None = None


class CallFilter(msgspec.Struct, frozen=True):
    """Which executions that call webhooks are meant."""

    job_id: str | None = None
    endpoint: str | None = None
    """The one that the job has at present."""
    state: str | None = None
    since_ms: int | None = None
    """Meant for this time or a later one."""
    until_ms: int | None = None
    """Meant for a time before this."""


class KnownCall(msgspec.Struct, frozen=True, array_like=True):
    """An execution that calls a webhook, and what became of its dead letter if it left one."""

    execution: Execution
    died_ms: int | None = None
    archived: bool = False
    retried_as: ExecutionId | None = None
    resolved_ms: int | None = None


class CallPage(NamedTuple):
    calls: list[KnownCall]
    next: str | None
    """Where to go on. There may be more although this page is not full, or even empty."""


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """What a job said at a revision; or says at present, if that one is not kept."""

    name: str | None
    state: JobState
    pool: str
    handler: str
    endpoint: str | None
    revision: int
    payload: bytes | None


class WorkerRow(msgspec.Struct, frozen=True):
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
    name: str
    settings: PoolSettings
    handlers: tuple[tuple[HandlerInfo, int], ...]
    """With the number of live workers that have it."""
    workers: int
    capacity: int
    queued: int
    running: int
    due: int


DUE_LOOKED_AT = 100_000
"""How many rows of the timeline `counts` looks at."""


class Archive(ABC):
    @abstractmethod
    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None: ...

    @abstractmethod
    async def list_jobs(self, tenant: TenantId, where: JobFilter, after: str | None, limit: int) -> list[JobRow]:
        """Newest first, beginning after the id `after`. Without payloads, which `payloads` has."""

    @abstractmethod
    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        """The ciphertexts that these jobs have at present."""

    @abstractmethod
    async def list_tasks(self, tenant: TenantId, status: str | None, offset: int, limit: int) -> list[WebhookRow]:
        """Jobs of the handler that calls webhooks which have an endpoint, newest first; cancelled ones are not listed.

        `status` is as tasks have it: FAILED if the job was halted, or is a one-shot that is over and whose latest execution
        did not succeed; else PAUSED; RUNNING if an execution runs; SCHEDULED if one is open or a time is to come; COMPLETED.
        """

    @abstractmethod
    async def count_tasks(self, tenant: TenantId, status: str | None, most: int) -> int:
        """How many `list_tasks` has. Counts no further than `most`."""

    @abstractmethod
    async def find_execution(self, tenant: TenantId, execution_id: ExecutionId) -> Execution | None: ...

    @abstractmethod
    async def list_executions(
        self, tenant: TenantId, job_id: JobId, *, state: str | None, after: str | None, limit: int
    ) -> list[Execution]:
        """Newest first, beginning after the id `after`."""

    @abstractmethod
    async def executions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Execution]:
        """By nominal time, oldest first; scheduled ones only."""

    @abstractmethod
    async def decisions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Decision]:
        """Ranges that touch the interval, oldest first."""

    @abstractmethod
    async def payload_of(self, tenant: TenantId, job_id: JobId, revision: int) -> bytes | None:
        """The ciphertext a revision of a job had."""

    @abstractmethod
    async def list_calls(
        self, tenant: TenantId, where: CallFilter, after: str | None, limit: int, most: int
    ) -> CallPage:
        """Executions that call webhooks, of jobs that are not cancelled, newest first by the time they were meant for, beginning
        after the id `after`. At most so many are looked at, whether they are meant or not, so that it costs the same however
        many there are."""

    @abstractmethod
    async def find_calls(self, tenant: TenantId, executions: Collection[str]) -> dict[ExecutionId, KnownCall]:
        """Those of them that call webhooks."""

    @abstractmethod
    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        """By (job, revision). Of jobs that are gone, nothing."""

    @abstractmethod
    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        """Newest first, beginning after the execution id `after`; those retried are not listed."""

    @abstractmethod
    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        """When it died, whether it is archived, and which execution retries it."""

    @abstractmethod
    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        """All pools, or the one of this name. `queued`, `running` and `due` are those of the tenant, if one is named."""

    @abstractmethod
    async def pool_names(self) -> list[str]: ...

    @abstractmethod
    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None: ...

    @abstractmethod
    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        """With its cap, which what is handed out at present counts against."""

    @abstractmethod
    async def list_workers(self) -> list[WorkerRow]: ...

    @abstractmethod
    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None: ...

    @abstractmethod
    async def pauses(self) -> list[Pause]:
        """What is held at present."""

    @abstractmethod
    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        """From now on. What is held already stays so, since the time it was."""

    @abstractmethod
    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        """Whether it was held or not."""

    @abstractmethod
    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        """Settings that were put after the one with this sequence number, with theirs, in their order. From 0 on: all.

        Numbers grow in the order of commits: whoever has seen one has seen all that are lower.
        """

    @abstractmethod
    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, Used]]:
        """What a tenant used on these days and all between, oldest first. On days that are missing, nothing."""

    @abstractmethod
    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        """With its caps, which what is handed out at present counts against."""

    @abstractmethod
    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        """How many jobs of a tenant wait for a time, or are paused. Counts no further than `most`.

        A paused one is told from one that is over by looking at it: that is done for as many, and for ten thousand at least.
        """

    @abstractmethod
    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        """When the first one-shot of a tenant is due that is among the next of the timeline."""

    @abstractmethod
    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        """Which of these unique keys the tenant uses already."""

    @abstractmethod
    async def capped_pools(self) -> list[str]:
        """Pools that have a cap."""

    @abstractmethod
    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        """How full these are. What is missing is empty, and has no cap."""

    @abstractmethod
    async def due_before(
        self, mark: Mark, most: int, *, tenant: TenantId | None = None, pool: str | None = None
    ) -> Ahead:
        """What is due before a mark, of a tenant or for a pool if they are named. At most so many rows are looked at, of
        whomever they are, so that it costs the same however much is due."""

    @abstractmethod
    async def due_before_with_key(self, mark: Mark, most: int, tenant: TenantId, key: str) -> Ahead:
        """The same of a tenant's jobs that share a concurrency key."""

    @abstractmethod
    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        """Newest first, each with its number, beginning after the number `after`: what concerns the tenant, or every tenant."""

    @abstractmethod
    async def note_visit(self, audit: AuditEntry) -> None:
        """Add an OPERATOR_READ, unless this subject has one in this tenant for the same day (UTC)."""

    @abstractmethod
    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        """Totals of a tenant, or of all: running, queued, due, due_looked_at, oldest_due_ms, dead, workers.

        Of what is due, the first DUE_LOOKED_AT of all tenants are looked at. Workers are everybody's.
        """

    @abstractmethod
    async def figures(self) -> list[Figures]:
        """What each recorder said last."""

    @abstractmethod
    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        """(unique key, job) of live jobs whose unique key begins with a prefix."""


def call_page(calls: list[KnownCall], limit: int, looked_until: str | None) -> CallPage:
    """Of one more than asked for. `looked_until`: the last that was looked at, if there may be more after it."""
    if len(calls) > limit:
        return CallPage(calls[:limit], calls[limit - 1].execution.id)
    return CallPage(calls, looked_until)
