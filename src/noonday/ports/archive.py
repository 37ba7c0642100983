"""The read side of the store, and the settings of tenants, pools and pauses."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from noonday.model.audit import AuditEntry
from noonday.model.batch import Mark
from noonday.model.execution import Execution
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decision
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.message import HandlerInfo
from noonday.model.pause import Pause
from noonday.model.recent import Figures
from noonday.model.rows import (
    Ahead,
    CallPage,
    DeadLetter,
    Definition,
    JobRow,
    KnownCall,
    PoolRow,
    WebhookRow,
    WorkerRow,
)
from noonday.model.slots import SlotKey, Slots
from noonday.model.usage import Used
from noonday.model.view import PoolSettings, TenantSettings

DUE_LOOKED_AT = 100_000
"""How many rows of the timeline `counts` examines at most."""


class Archive(ABC):
    """Look up jobs, executions, dead letters, pools and tenants, and store the settings of pools, tenants and pauses."""

    @abstractmethod
    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None: ...

    @abstractmethod
    async def list_jobs(self, tenant: TenantId, where: JobFilter, after: str | None, limit: int) -> list[JobRow]:
        """Return jobs, newest first, beginning after the id `after`. They have no payloads; `payloads` returns these."""

    @abstractmethod
    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        """Return the ciphertexts of the present payloads of some jobs."""

    @abstractmethod
    async def list_tasks(self, tenant: TenantId, status: str | None, offset: int, limit: int) -> list[WebhookRow]:
        """Return jobs of the webhook handler that have an endpoint, newest first. Cancelled jobs are left out.

        `status` is the status of a task, the first that applies: FAILED if the job was halted, or is a finished one-shot whose
        latest execution did not succeed; PAUSED; RUNNING if an execution runs; SCHEDULED if an execution is open or a fire
        time follows; COMPLETED.
        """

    @abstractmethod
    async def count_tasks(self, tenant: TenantId, status: str | None, most: int) -> int:
        """Return how many jobs `list_tasks` would list, counted up to `most`."""

    @abstractmethod
    async def find_execution(self, tenant: TenantId, execution_id: ExecutionId) -> Execution | None: ...

    @abstractmethod
    async def list_executions(
        self, tenant: TenantId, job_id: JobId, *, state: str | None, after: str | None, limit: int
    ) -> list[Execution]:
        """Return executions of a job, newest first, beginning after the id `after`."""

    @abstractmethod
    async def executions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Execution]:
        """Return the scheduled executions of a job with a nominal time in an interval, oldest first."""

    @abstractmethod
    async def decisions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Decision]:
        """Return the decisions of a job whose ranges overlap an interval, oldest first."""

    @abstractmethod
    async def payload_of(self, tenant: TenantId, job_id: JobId, revision: int) -> bytes | None:
        """Return the ciphertext of a job's payload at a revision."""

    @abstractmethod
    async def list_calls(
        self, tenant: TenantId, where: CallFilter, after: str | None, limit: int, most: int
    ) -> CallPage:
        """Return executions that call webhooks, newest nominal time first, beginning after the id `after`.

        Those of cancelled jobs are left out. At most `most` executions are examined, whether they match or not, so that the
        cost does not grow with their number.
        """

    @abstractmethod
    async def find_calls(self, tenant: TenantId, executions: Collection[str]) -> dict[ExecutionId, KnownCall]:
        """Return those of the executions that call webhooks."""

    @abstractmethod
    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        """Return definitions by (job, revision). Deleted jobs are missing."""

    @abstractmethod
    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        """Return dead letters that were not retried, newest first, beginning after the execution id `after`."""

    @abstractmethod
    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        """Return (died_ms, whether it is archived, the execution that retries it) of a dead letter."""

    @abstractmethod
    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        """Return all pools, or the one with a name. If a tenant is given, `queued`, `running` and `due` count only its work."""

    @abstractmethod
    async def pool_names(self) -> list[str]: ...

    @abstractmethod
    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None: ...

    @abstractmethod
    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        """Store the settings of a pool and its cap. Executions that are dispatched at present count against the cap."""

    @abstractmethod
    async def list_workers(self) -> list[WorkerRow]: ...

    @abstractmethod
    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None: ...

    @abstractmethod
    async def pauses(self) -> list[Pause]:
        """Return the present pauses."""

    @abstractmethod
    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        """Add a pause, effective at once. A pause that exists already keeps its `since_ms`."""

    @abstractmethod
    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        """Remove a pause, if it exists."""

    @abstractmethod
    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        """Return (tenant, settings, sequence number) of settings that were put after a sequence number, in order. 0: all.

        Numbers grow in the order of commits: a reader that has seen one has seen all lower ones.
        """

    @abstractmethod
    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, Used]]:
        """Return (day, usage) of a tenant from one day to another, inclusive, oldest first. Days without usage are missing."""

    @abstractmethod
    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        """Store the settings of a tenant and its caps. Executions that are dispatched at present count against the caps."""

    @abstractmethod
    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        """Return how many jobs of a tenant wait for a time or are paused, counted up to `most`.

        Only the job's row tells a paused job from a finished one. A driver may read just `most` or 10,000 jobs without a time,
        whichever is more.
        """

    @abstractmethod
    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        """Return when the first one-shot of a tenant is due. Only the head of the timeline is searched."""

    @abstractmethod
    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        """Return which of these unique keys the tenant uses already."""

    @abstractmethod
    async def capped_pools(self) -> list[str]:
        """Return the names of pools that have a cap."""

    @abstractmethod
    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        """Return the use and the cap of slots. A missing slot is unused and has no cap."""

    @abstractmethod
    async def due_before(
        self, mark: Mark, most: int, *, tenant: TenantId | None = None, pool: str | None = None
    ) -> Ahead:
        """Count the entries that are due before a mark, of one tenant or for one pool if given.

        At most `most` rows are examined, whether they match or not, so that the cost does not grow with what is due.
        """

    @abstractmethod
    async def due_before_with_key(self, mark: Mark, most: int, tenant: TenantId, key: str) -> Ahead:
        """Count like `due_before`, but only jobs of a tenant that share a concurrency key."""

    @abstractmethod
    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        """Return (number, entry) of audit entries that concern the tenant or every tenant, newest first, after `after`."""

    @abstractmethod
    async def note_visit(self, audit: AuditEntry) -> None:
        """Add an OPERATOR_READ entry, unless this subject has one in this tenant for the same day (UTC)."""

    @abstractmethod
    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        """Return totals of a tenant, or of all: running, queued, due, due_looked_at, oldest_due_ms, dead, workers.

        Only the first DUE_LOOKED_AT due rows of all tenants are examined. `workers` is never limited to a tenant.
        """

    @abstractmethod
    async def figures(self) -> list[Figures]:
        """Return the latest figures of each recorder."""

    @abstractmethod
    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        """Return (unique key, job) of live jobs whose unique key begins with a prefix."""
