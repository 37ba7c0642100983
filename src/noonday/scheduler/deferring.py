"""Entries that could not be fired for a reason of their own."""

from collections.abc import Collection, Iterable

from noonday.model.firing import Entry

FIRST_SEC, LONGEST_SEC = 1.0, 60.0
MOST = 10_000
"""How many are known. What is beyond that is found by the sweeper, again and again."""


class DeferredEntries:
    """Keeps entries away from the others, each for longer every time it fails. They stay on the timeline, undecided.

    Nothing of this is stored: whoever owns the partition next finds out by trying.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[float, Entry]] = {}
        """By key: when it is tried again."""
        self._failures: dict[str, int] = {}
        """By key, until it is fired."""
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, entry: Entry) -> bool:
        waiting = self._waiting.get(entry.key)
        return waiting is not None and waiting[1] == entry

    def add(self, entries: Iterable[Entry], now: float) -> None:
        for entry in entries:
            if len(self._failures) >= MOST and entry.key not in self._failures:
                continue
            failures = self._failures[entry.key] = self._failures.get(entry.key, 0) + 1
            at = now + min(LONGEST_SEC, FIRST_SEC * 2 ** min(failures - 1, 10))
            self._waiting[entry.key] = (at, entry)
            self._next_at = min(self._next_at, at) if len(self._waiting) > 1 else at

    def take(self, partitions: Collection[int], now: float) -> list[Entry]:
        """Returns those to try again now."""
        if not self._waiting or now < self._next_at:
            return []
        taken = [entry for at, entry in self._waiting.values() if at <= now]
        for entry in taken:
            del self._waiting[entry.key]
        self._next_at = min((at for at, _ in self._waiting.values()), default=0.0)
        for entry in taken:
            if entry.partition not in partitions:
                self._failures.pop(entry.key, None)
        return [entry for entry in taken if entry.partition in partitions]

    def forget(self, entries: Iterable[Entry]) -> None:
        """These were fired, or are not what the timeline has any more."""
        if self._failures:
            for entry in entries:
                if entry.key not in self._waiting:
                    self._failures.pop(entry.key, None)
