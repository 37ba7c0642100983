"""The near future, ordered."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Mapping, Sequence

from noonday.model.errors import IndexUnavailable
from noonday.model.firing import Entry
from noonday.model.shares import EQUAL, Shares, Within
from noonday.model.turns import TimelinePosition


class HotIndex(ABC):
    """Entries due soon. A cache: it may lose everything at any time, and the cost is lateness.

    Entries are only ever added, never overwritten: each names its revision or dispatch, so a stale one is recognised by the
    fire. Anybody places; only the owner of a partition claims from it, and its claims never overlap.
    """

    @abstractmethod
    async def place(self, entries: Sequence[Entry]) -> None:
        """Add entries. Adding one that is there already changes nothing."""

    async def hint(self, entries: Sequence[Entry]) -> None:
        """Add entries if the index can be reached; what it does not hear of now, hydrator or sweeper find in the store."""
        if entries:
            with contextlib.suppress(IndexUnavailable):
                await self.place(entries)

    @abstractmethod
    async def claim(
        self,
        now_ms: int,
        partitions: Collection[int],
        credit: Mapping[str, int],
        limit: int,
        shares: Shares = EQUAL,
    ) -> list[Entry]:
        """Take entries of these partitions that are ready: early ones up to the lead before their due time, others at it.

        No more for a pool than its credit; a pool that is not named has none. Tenants take turns by weight across all partitions,
        none more than its share has room for, which is less afterwards; within a tenant HIGH, NORMAL and LOW share 16:4:1;
        then by due time.
        """

    @abstractmethod
    def waiting(self, now_ms: int, credit: Mapping[str, int], tenants: Container[str]) -> Mapping[tuple[str, str], int]:
        """In which pools with credit some tenants have something ready here, and at most how much: by (pool, tenant)."""

    def left_out(self) -> Mapping[str, TimelinePosition]:
        """Tenants of whom so much is placed that an index which keeps everything in memory has taken in no more, and that have
        room again; with the place on the timeline from which on something of theirs may not be here."""
        return {}

    def room(self) -> int:
        """How many entries a tenant that has none here may place before some are left out."""
        raise NotImplementedError(f"{type(self).__name__} leaves nothing out")

    def take_in(self, tenant: str, until: TimelinePosition | None) -> None:
        """What was left out of a tenant is about to be placed: what it has before this place on the timeline, or all."""
        raise NotImplementedError(f"{type(self).__name__} leaves nothing out")

    @abstractmethod
    def size(self) -> int:
        """How many entries this process keeps in memory."""

    @abstractmethod
    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of the entries that it does not have."""

    @abstractmethod
    async def next_ready_ms(
        self,
        partitions: Collection[int],
        credit: Mapping[str, int],
        patience_ms: int = 0,
        blocked: Container[Within] = (),
    ) -> int | None:
        """When the earliest entry of these partitions, of a pool with credit, is ready. It may lie in the past. What is ready of
        tenants that are blocked does not count.

        Staged entries have time until they are due: whoever has patience is told to come for them that much later, and
        finds more of them ready.
        """

    @abstractmethod
    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        """Names the memory of each partition. Another generation means that what was placed before is gone."""

    @abstractmethod
    async def forget(self, partitions: Collection[int]) -> None:
        """These partitions are not owned any more: drop what this process keeps of them. What others can see stays."""
