"""The work at hand, the pools and workers that do it, and what tenants have used."""

from abc import ABC, abstractmethod

from noonday.model.batch import Mark
from noonday.model.ids import TenantId
from noonday.model.recent import Figures
from noonday.model.rows import (
    EntriesAhead,
    PoolRow,
    WorkerRow,
)
from noonday.model.usage import UsageTotals

DUE_LOOKED_AT = 100_000
"""Maximum number of rows of the timeline that `counts` examines."""


class Workload(ABC):
    """Count work that is due, dispatched or running, list pools and workers, and read figures and usage."""

    @abstractmethod
    async def list_pools(self, now_ms: int, name: str | None = None, tenant: TenantId | None = None) -> list[PoolRow]:
        """Return all pools, or the one with a name. If a tenant is given, `queued`, `running` and `due` count only its work."""

    @abstractmethod
    async def list_workers(self) -> list[WorkerRow]: ...

    @abstractmethod
    async def counts(self, now_ms: int, tenant: TenantId | None = None) -> dict[str, int]:
        """Return totals of a tenant, or of all: running, queued, due, due_looked_at, oldest_due_ms, dead, workers.

        Only the first DUE_LOOKED_AT due rows of all tenants are examined. `workers` is never limited to a tenant.
        """

    @abstractmethod
    async def figures(self) -> list[Figures]:
        """Return the latest figures of each recorder."""

    @abstractmethod
    async def usage(self, tenant: TenantId, from_day: int, to_day: int) -> list[tuple[int, UsageTotals]]:
        """Return (day, usage) of a tenant from one day to another, inclusive, oldest first. Days without usage are missing."""

    @abstractmethod
    async def due_before(
        self, mark: Mark, most: int, *, tenant: TenantId | None = None, pool: str | None = None
    ) -> EntriesAhead:
        """Count the entries that are due before a mark, of one tenant or for one pool if given.

        At most `most` rows are examined, whether they match or not, so that the cost does not grow with what is due.
        """

    @abstractmethod
    async def due_before_with_key(self, mark: Mark, most: int, tenant: TenantId, key: str) -> EntriesAhead:
        """Count like `due_before`, but only jobs of a tenant that share a concurrency key."""
