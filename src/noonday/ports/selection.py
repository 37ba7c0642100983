"""Selection of jobs and dead letters by filters, for bulk operations and groups."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from noonday.model.ids import ExecutionId, TenantId
from noonday.model.selection import DeadSelection, DeadSelector, JobSelection, JobSelector, RunEnd


class Selection(ABC):
    """Select items of a tenant, newest first, at a cost that does not grow with their number.

    A page examines at most `most` items, whether they match or not. If more may follow, the page has a `next`.
    """

    @abstractmethod
    async def jobs(
        self, tenant: TenantId, where: JobSelector, after: str | None, limit: int, *, until_ms: int, most: int
    ) -> JobSelection:
        """Return jobs that were created before `until_ms` and may still fire, beginning after the id `after`.

        Jobs that send notices are selected by their pool only.
        """

    @abstractmethod
    async def dead_letters(
        self, tenant: TenantId, where: DeadSelector, after: str | None, limit: int, *, most: int
    ) -> DeadSelection:
        """Return dead letters that were neither retried nor archived, beginning after the execution id `after`."""

    @abstractmethod
    async def run_ends(self, tenant: TenantId, runs: Collection[ExecutionId]) -> list[RunEnd]:
        """Return how far these executions are. Deleted ones are missing."""
