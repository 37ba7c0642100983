"""The part of a hot index that keeps entries in the memory of the process that owns their partitions."""

from collections.abc import Collection, Container, Mapping, Sequence

import uuid_utils

from noonday.model.budget import EntryBudget
from noonday.model.firing import Entry
from noonday.model.shares import EQUAL, Shares, Within
from noonday.model.turns import MOST_OF_A_TENANT, TimelinePosition, Turns
from noonday.ports.hot_index import HotIndex


class TurnsIndex(HotIndex):
    """Hot index over `Turns`. A driver adds the entries of other processes."""

    def __init__(
        self, lead_ms: int, most_of_a_tenant: int = MOST_OF_A_TENANT, budget: EntryBudget | None = None
    ) -> None:
        self._queue = Turns(lead_ms, most_of_a_tenant, budget or EntryBudget())
        self._generations: dict[int, str] = {}
        """Generations of the partitions that this process owns."""

    async def claim(
        self,
        now_ms: int,
        partitions: Collection[int],
        credit: Mapping[str, int],
        limit: int,
        shares: Shares = EQUAL,
    ) -> list[Entry]:
        await self._own(partitions)
        return self._queue.claim(now_ms, credit, limit, shares)

    def omitted(self) -> Mapping[str, TimelinePosition]:
        return self._queue.omitted()

    def room(self) -> int:
        return self._queue.room()

    def readmit(self, tenant: str, until: TimelinePosition | None) -> None:
        self._queue.readmit(tenant, until)

    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        return self._queue.missing(entries)

    def waiting(self, now_ms: int, credit: Mapping[str, int], tenants: Container[str]) -> Mapping[tuple[str, str], int]:
        return self._queue.waiting(now_ms, credit, tenants)

    async def next_ready_ms(
        self,
        partitions: Collection[int],
        credit: Mapping[str, int],
        patience_ms: int = 0,
        blocked: Container[Within] = (),
    ) -> int | None:
        await self._own(partitions)
        return self._queue.next_ready_ms(credit, patience_ms, blocked)

    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        await self._own(partitions)
        self._begin_generations(partitions)
        return {partition: self._generations[partition] for partition in partitions}

    async def forget(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self._generations.pop(partition, None)
        self._queue.drop(partitions)

    def size(self) -> int:
        return len(self._queue)

    async def _own(self, partitions: Collection[int]) -> None:
        """Claim from these partitions only, from now on."""
        self._queue.own(partitions)

    def _begin_generations(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if partition not in self._generations:
                self._generations[partition] = str(uuid_utils.uuid4())
