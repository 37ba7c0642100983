"""The hot index in the memory of the process that owns the partitions."""

from collections.abc import Sequence

from noonday.drivers.turns_index import TurnsIndex
from noonday.model.firing import Entry


class MemoryHotIndex(TurnsIndex):
    async def add(self, entries: Sequence[Entry]) -> None:
        self._queue.add(entries)
