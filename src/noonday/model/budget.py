"""How many entries of the timeline a process keeps in memory."""

from collections.abc import Iterable

INDEX_ENTRIES = 500_000


class EntryBudget:
    """One bound for the entries of the hot index and for those that a key blocks, together.

    Blocked entries have at most half of it, the index has the rest. A page of the store may exceed it for a moment.
    """

    def __init__(self, limit: int = INDEX_ENTRIES) -> None:
        self.limit = limit
        self.blocked = 0
        """Kept up to date by the holder of the blocked entries."""

    @property
    def for_index(self) -> int:
        return max(1, self.limit - self.blocked)

    @property
    def for_blocked(self) -> int:
        return max(1, self.limit // 2)


def fair_level(counts: Iterable[int], room: int) -> int:
    """The largest number such that all fit into the room, if each of them has at most that many. At least 1."""
    ascending = sorted(counts)
    for at, count in enumerate(ascending):
        sharing = len(ascending) - at
        if count * sharing > room:
            return max(1, room // sharing)
        room -= count
    return max(1, ascending[-1] if ascending else room)
