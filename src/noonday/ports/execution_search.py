"""Search of the executions of all jobs."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from noonday.model.found_executions import ExecutionFilter, FoundPage, GroupedBy, GroupedExecutions
from noonday.model.ids import ExecutionId, TenantId


class ExecutionSearch(ABC):
    """Find executions over all jobs, at a cost that does not grow with their number."""

    @abstractmethod
    async def search(
        self, tenant: TenantId, where: ExecutionFilter, after: str | None, limit: int, *, most: int, now_ms: int
    ) -> FoundPage:
        """Return executions of a tenant, newest nominal time first, beginning after the id `after`.

        At most `most` executions of all tenants are examined, whether they match or not. If more may follow, the page has a
        cursor. So an execution costs no index of its own, and a page of a small tenant may be short or empty.
        """

    @abstractmethod
    async def groups(
        self, tenant: TenantId, where: ExecutionFilter, by: GroupedBy, limit: int, *, most: int, now_ms: int
    ) -> GroupedExecutions:
        """Return the largest groups of executions of a tenant, the largest first.

        Of `where`, only state, pool, handler and the nominal times count.

        At most `most` executions of all tenants are examined, the newest. Those that wait in the same way share pool and
        concurrency key, and are all buffered, dispatched, due, or not due yet.
        """

    @abstractmethod
    async def open_among(self, executions: Collection[ExecutionId]) -> set[ExecutionId]:
        """Return which of these executions, of any tenants, have not ended."""
