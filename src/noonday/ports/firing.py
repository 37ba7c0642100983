"""The store as the scheduler uses it: the timeline, fires, batches and orphan recovery."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from noonday.model.batch import Batch, FireRequest, FireResult, Mark, Owner, RecurringJob, Takeover
from noonday.model.firing import Entry
from noonday.model.ids import InstanceId, JobId, TenantId
from noonday.model.message import Dispatch


class Firing(ABC):
    """Walk the timeline and fire what is due. A fire is one transaction, and no lock waits for a client."""

    @abstractmethod
    async def take_over(self, instance: InstanceId, partitions: Collection[int]) -> Mapping[int, Takeover]:
        """Raise the epoch of these partitions for an instance. From then on, former owners are refused."""

    @abstractmethod
    async def walk(self, partitions: Collection[int], after: Mark | None, until_ms: int, limit: int) -> list[Entry]:
        """Return rows of some partitions with a due time up to `until_ms`, by (due time, key), beginning after a mark."""

    @abstractmethod
    async def walk_tenant(
        self, tenant: TenantId, partitions: Collection[int], first: Mark, until_ms: int, limit: int
    ) -> list[Entry]:
        """Return rows like `walk`, but of one tenant and beginning at a mark, inclusive."""

    @abstractmethod
    async def plans(self, entries: Sequence[Entry]) -> dict[tuple[JobId, int], RecurringJob]:
        """Return the jobs of entries that need a plan, by (job, revision). Entries of an old revision have none.

        A row that cannot be read is returned with its flaw and does not affect the others.
        """

    @abstractmethod
    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        """Turn due entries into executions, all in one transaction.

        For each entry the store checks four conditions: the partition has the owner's epoch; the row is still the one that the
        entry names (compare and set); it is due by the store's clock plus the lead; no pause that was stored before stops its
        tenant or pool. It then decides overlap and keys, advances the fire row or deletes the dispatch row, inserts PENDING
        executions with dispatch 1 (or marks the named dispatch as fired), and writes decisions and the batch.
        """

    @abstractmethod
    async def seal(self, batches: Sequence[int]) -> None:
        """Mark batches as published: the bus has acknowledged all their dispatches."""

    @abstractmethod
    async def unsealed(self, before_ms: int, limit: int, after: int = 0) -> list[Batch]:
        """Return batches that were fired before an instant and are not sealed, by id, beginning after the id `after`."""

    @abstractmethod
    async def dispatches_of(self, batch: Batch) -> list[Dispatch]:
        """Return the dispatches of a batch that are still PENDING under the number they were fired with."""

    @abstractmethod
    async def requeue_orphans(
        self, fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool = True
    ) -> list[Entry]:
        """Return orphaned executions to the timeline with the next dispatch number, or cancel those that are so revoked.

        An orphan is PENDING, bound to no worker, and was fired before `fired_before_ms`. With `ahead`, an execution whose fire
        is stamped so far ahead of now that the clock was set back since is an orphan too. Returns the new rows of the timeline.
        """

    @abstractmethod
    async def count_due(self, now_ms: int) -> dict[str, tuple[int, int]]:
        """Return (count, earliest due_ms) of the due rows on the timeline, by pool."""

    @abstractmethod
    async def zone_data(self) -> str | None:
        """Return the version of the time-zone data that all schedules are planned with, such as `2026a`. None at first."""

    @abstractmethod
    async def replan_again(self, newest: str) -> None:
        """Ask the instances that have the newest time-zone data to replan all jobs once more."""

    @abstractmethod
    async def replan(self, version: str, limit: int, now_ms: int) -> int:
        """Recompute the next fire of some jobs that were planned with older time-zone data, and store the progress.

        Returns how many jobs were examined; fewer than the limit means that they were the last. Does nothing if `version` is
        not newer than the version that schedules are planned with, or are being planned with.
        """
