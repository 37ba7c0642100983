"""The near future, ordered."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from noonday.model.firing import Entry


class HotIndex(ABC):
    """Entries due soon. A cache: it may lose everything at any time, and the cost is lateness.

    Entries are only ever added, never overwritten: each names its revision or dispatch, so a stale one is recognised by the
    fire. Only the owner of a partition claims from it, and claims never overlap.
    """

    @abstractmethod
    async def place(self, entries: Sequence[Entry]) -> None:
        """Add entries. Adding one that is there already changes nothing."""

    @abstractmethod
    async def claim(self, now_ms: int, credit: Mapping[str, int], limit: int) -> list[Entry]:
        """Take entries that are ready: staged ones up to the lead before their due time, others at it.

        No more for a pool than its credit; a pool that is not named has none. Tenants take turns; within a tenant HIGH, NORMAL
        and LOW share 16:4:1; then by due time.
        """

    @abstractmethod
    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of the entries that it does not have."""

    @abstractmethod
    async def next_ready_ms(self, credit: Mapping[str, int], patience_ms: int = 0) -> int | None:
        """When the earliest entry of a pool with credit is ready. It may lie in the past.

        Staged entries have time until they are due: whoever has patience is told to come for them that much later, and
        finds more of them ready.
        """

    @abstractmethod
    async def era(self) -> str:
        """Changes when the index lost its memory."""

    @abstractmethod
    async def forget(self, partitions: Sequence[int]) -> None:
        """Drop what belongs to partitions that are not owned any more."""
