"""The hot index: timeline entries that are due soon, ordered by due time."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Mapping, Sequence

from noonday.model.errors import IndexUnavailable
from noonday.model.firing import Entry
from noonday.model.shares import EQUAL, Shares, Within
from noonday.model.turns import TimelinePosition


class HotIndex(ABC):
    """Entries due soon. A cache: it may lose everything at any time, and the cost is lateness.

    Entries are added, never overwritten: each names its revision or dispatch number, so the fire recognises a stale one. Any
    process adds entries. Only a partition's owner claims them, and its claims never overlap.
    """

    @abstractmethod
    async def add(self, entries: Sequence[Entry]) -> None:
        """Add entries. Adding an entry twice changes nothing."""

    async def hint(self, entries: Sequence[Entry]) -> None:
        """Add entries if the index can be reached. If not, the hydrator or the sweeper finds them in the store."""
        if entries:
            with contextlib.suppress(IndexUnavailable):
                await self.add(entries)

    @abstractmethod
    async def claim(
        self,
        now_ms: int,
        partitions: Collection[int],
        credit: Mapping[str, int],
        limit: int,
        shares: Shares = EQUAL,
    ) -> list[Entry]:
        """Remove and return ready entries of these partitions. An early entry is ready one lead before its due time.

        Returns no more entries for a pool than its credit; a pool that `credit` does not name has none. Tenants take turns by
        weight across all partitions, and none takes more than its room in `shares`, which is reduced by what it takes. Within a
        tenant, HIGH, NORMAL and LOW share 16:4:1. Within a priority, entries are ordered by due time.
        """

    @abstractmethod
    def waiting(self, now_ms: int, credit: Mapping[str, int], tenants: Container[str]) -> Mapping[tuple[str, str], int]:
        """Return an upper bound of the ready entries of some tenants in pools with credit, by (pool, tenant)."""

    def omitted(self) -> Mapping[str, TimelinePosition]:
        """Return tenants whose later entries were left out because memory is limited, and that have room again.

        Each has the position on the timeline from which on its entries may be missing here.
        """
        return {}

    def room(self) -> int:
        """Return how many entries a tenant that has none here may add before some are left out."""
        raise NotImplementedError(f"{type(self).__name__} leaves nothing out")

    def readmit(self, tenant: str, until: TimelinePosition | None) -> None:
        """Announce that entries which were left out are about to be added: those before a position, or all if None."""
        raise NotImplementedError(f"{type(self).__name__} leaves nothing out")

    @abstractmethod
    def size(self) -> int:
        """Return how many entries this process keeps in memory."""

    @abstractmethod
    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries that the index does not have."""

    @abstractmethod
    async def next_ready_ms(
        self,
        partitions: Collection[int],
        credit: Mapping[str, int],
        patience_ms: int = 0,
        blocked: Container[Within] = (),
    ) -> int | None:
        """Return when the earliest entry of these partitions, of a pool with credit, is ready. It may lie in the past.

        Ready entries of blocked tenants do not count. An early entry counts `patience_ms` later: it has time until it is due,
        and by then more early entries are ready.
        """

    @abstractmethod
    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        """Return the generation of each partition. A new name means that the entries that were added before are gone."""

    @abstractmethod
    async def forget(self, partitions: Collection[int]) -> None:
        """Drop what this process keeps of partitions that it no longer owns. Memory that other processes share stays."""
