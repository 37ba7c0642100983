"""The limit of timeline entries that a process keeps in memory."""

from collections.abc import Iterable

INDEX_ENTRIES = 500_000


class EntryBudget:
    """One limit for the entries of the hot index and those that a key blocks, together.

    Blocked entries get at most half of it, the index gets the rest. A page of the store may exceed it for a moment.
    """

    def __init__(self, limit: int = INDEX_ENTRIES) -> None:
        self.limit = limit
        self.blocked = 0
        """Number of blocked entries. The owner of the blocked entries keeps it up to date."""

    @property
    def for_index(self) -> int:
        return max(1, self.limit - self.blocked)

    @property
    def for_blocked(self) -> int:
        return max(1, self.limit // 2)


def fair_level(counts: Iterable[int], room: int) -> int:
    """Return the largest limit such that the counts, each cut to it, fit into the room together. At least 1."""
    ascending = sorted(counts)
    for at, count in enumerate(ascending):
        sharing = len(ascending) - at
        if count * sharing > room:
            return max(1, room // sharing)
        room -= count
    return max(1, ascending[-1] if ascending else room)
