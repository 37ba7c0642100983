"""Entries that cannot be fired for a reason of their own, and are tried again later."""

from collections.abc import Collection, Iterable

from noonday.model.firing import Entry

FIRST_SEC, LONGEST_SEC = 1.0, 60.0
"""First and longest wait before a deferred entry is tried again."""
MAX_DEFERRED = 10_000
"""Maximum number of deferred entries. The sweeper finds entries beyond it again and again."""


class DeferredEntries:
    """Keeps failing entries away from the others, for longer after each failure. They stay on the timeline, undecided.

    Nothing of this is stored: the next owner of the partition finds out by trying.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[float, Entry]] = {}
        """Time of the next try, and the entry, by key."""
        self._failures: dict[str, int] = {}
        """Failures of each key, until it is fired."""
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, entry: Entry) -> bool:
        waiting = self._waiting.get(entry.key)
        return waiting is not None and waiting[1] == entry

    def add(self, entries: Iterable[Entry], now: float) -> None:
        for entry in entries:
            if len(self._failures) >= MAX_DEFERRED and entry.key not in self._failures:
                continue
            failures = self._failures[entry.key] = self._failures.get(entry.key, 0) + 1
            retry_at = now + min(LONGEST_SEC, FIRST_SEC * 2 ** min(failures - 1, 10))
            self._waiting[entry.key] = (retry_at, entry)
            self._next_at = min(self._next_at, retry_at) if len(self._waiting) > 1 else retry_at

    def take(self, partitions: Collection[int], now: float) -> list[Entry]:
        """Remove and return the entries to try again now."""
        if not self._waiting or now < self._next_at:
            return []
        taken = [entry for retry_at, entry in self._waiting.values() if retry_at <= now]
        for entry in taken:
            del self._waiting[entry.key]
        self._next_at = min((retry_at for retry_at, _ in self._waiting.values()), default=0.0)
        for entry in taken:
            if entry.partition not in partitions:
                self._failures.pop(entry.key, None)
        return [entry for entry in taken if entry.partition in partitions]

    def forget(self, entries: Iterable[Entry]) -> None:
        """Forget the failures of entries that were fired or are stale."""
        if self._failures:
            for entry in entries:
                if entry.key not in self._waiting:
                    self._failures.pop(entry.key, None)
