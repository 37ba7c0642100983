"""The read side of jobs, executions and dead letters."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from noonday.model.attempt import AttemptLogs
from noonday.model.execution import Execution
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decision
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.rows import (
    CallPage,
    DeadLetter,
    Definition,
    JobRow,
    KnownCall,
    WebhookRow,
)


class QueryStore(ABC):
    """Look up jobs, executions, decisions and dead letters. A method that takes a tenant finds only its rows."""

    @abstractmethod
    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None: ...

    @abstractmethod
    async def list_jobs(self, tenant: TenantId, where: JobFilter, after: str | None, limit: int) -> list[JobRow]:
        """Return jobs, newest first, beginning after the id `after`. They have no payloads; `payloads` returns these."""

    @abstractmethod
    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        """Return the ciphertexts of the present payloads of some jobs."""

    @abstractmethod
    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        """Return definitions by (job, revision). Deleted jobs are missing."""

    @abstractmethod
    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        """Return which of these unique keys the tenant uses already."""

    @abstractmethod
    async def jobs_named(self, tenant: TenantId, names: Collection[str]) -> dict[str, list[JobId]]:
        """Return the ids of the first two jobs of each of these names, oldest first. Cancelled jobs are left out."""

    @abstractmethod
    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        """Return (unique key, job) of live jobs whose unique key begins with a prefix."""

    @abstractmethod
    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        """Return how many jobs of a tenant wait for a time, are paused, or are child jobs that wait to be created, up to `most`.

        Only the job's row tells a paused job from a finished one. A driver may read just `most` or 10,000 jobs without a time,
        whichever is more.
        """

    @abstractmethod
    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        """Return when the first one-shot of a tenant is due. Only the head of the timeline is searched."""

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
    async def attempt_logs(self, tenant: TenantId, execution_id: ExecutionId) -> list[AttemptLogs]:
        """Return the log lines of an execution's attempts, oldest first. Attempts that logged nothing are left out."""

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
    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        """Return dead letters that were not retried, newest first, beginning after the execution id `after`."""

    @abstractmethod
    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        """Return (died_ms, whether it is archived, the execution that retries it) of a dead letter."""
