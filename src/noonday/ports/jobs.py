"""The store as intake uses it: jobs, snapshots of them, and the changes that are decided from a snapshot."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from noonday.model.audit import AuditEntry
from noonday.model.change import Change, ChangeResult, NewJob
from noonday.model.ids import ExecutionId, JobId, TenantId
from noonday.model.job import Job
from noonday.model.pause import DueResume
from noonday.model.receipt import Receipt
from noonday.model.snapshot import Snapshot

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
        seal: Callable[[Sequence[ChangeResult | None]], Receipt] | None,
    ) -> list[ChangeResult | None]:
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
        seal: Callable[[ChangeResult], Receipt] | None = None,
    ) -> ChangeResult:
        """Lock the job, take a snapshot, and apply the change that `decide` returns, in one transaction.

        The first snapshot has the executions `show` and the scope NAMED, so its cost does not depend on the job's history or
        backlog. `decide` is pure. If it raises Unread, it is called again with a larger snapshot. Any other exception of
        `decide` is raised here, and nothing is changed. Raises NotFound.
        """

    @abstractmethod
    async def keep_receipt(self, receipt: Receipt) -> None:
        """Store the receipt of a request that may be repeated without harm. Raises Conflict if the key has a receipt."""

    @abstractmethod
    async def next_resume_ms(self) -> int | None:
        """Return when the next paused job is to be resumed, also if that is in the past. None if there is none."""

    @abstractmethod
    async def due_resumes(self, now_ms: int, per_tenant: int, limit: int) -> list[DueResume]:
        """Return paused jobs that are to be resumed by now: of each tenant the earliest, at most `per_tenant`.

        At most `limit`, beginning with one of each tenant.
        """

    @abstractmethod
    async def find_receipt(self, tenant: TenantId, key: str) -> Receipt | None: ...
