"""Due entries that a concurrency key or an ordering key blocks."""

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from itertools import count

from noonday.model.batch import Blocked
from noonday.model.budget import EntryBudget, fair_level
from noonday.model.firing import Entry, Kind
from noonday.model.slots import SlotKey, is_of_ordering_key

FIRST_RETRY_SEC = 0.5
LONGEST_RETRY_SEC = 2.0
"""First and longest wait before blocked entries are tried again, if no slot is reported free."""
SPARE = 2
"""Entries tried beyond those that fit: some may be stale."""
_serial = count()


class BlockedEntries:
    """Entries that wait for a slot, by slot.

    Thousands may wait for one slot, so only about as many as fit are tried again, the earliest first. If none of them comes
    back, they were stale or have another owner now, and twice as many are tried next.
    """

    def __init__(self, budget: EntryBudget) -> None:
        """Entries beyond their part of `budget` are dropped, the latest first. The sweeper finds them again."""
        self._budget = budget
        self._by_slot: dict[SlotKey, _SlotWaiters] = {}
        self._entries: set[Entry] = set()
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._entries

    def add(self, blocked: Sequence[Blocked], now: float) -> None:
        for each in blocked:
            waiters = self._by_slot.get(each.slot)
            if waiters is None:
                waiters = self._by_slot[each.slot] = _SlotWaiters(
                    is_of_ordering_key(each.slot[1]), now + FIRST_RETRY_SEC
                )
                self._next_at = min(self._next_at, waiters.retry_at)
            waiters.blocked_again += 1
            waiters.fits = 2 * each.limit + SPARE
            if each.entry not in self._entries:
                self._entries.add(each.entry)
                waiters.push(each.entry)
        if len(self._entries) > self._budget.for_blocked:
            self._cut(self._budget.for_blocked * 7 // 8)
        self._budget.blocked = len(self._entries)

    def _cut(self, room: int) -> None:
        """Keep the first entries of each slot. The slots with the most entries keep equally many."""
        level = fair_level((len(waiters.heap) for waiters in self._by_slot.values()), room)
        for waiters in self._by_slot.values():
            self._entries.difference_update(waiters.cut(level))

    def release(self, names: Collection[str] | None = None) -> None:
        """Try the first entries of freed slots at once. `names` are the freed slots; None means all slots."""
        for (_, name), waiters in self._by_slot.items():
            if names is None or name in names:
                waiters.retry_at, waiters.wait_sec = 0.0, FIRST_RETRY_SEC
                self._next_at = 0.0

    def take(self, partitions: Collection[int], now: float) -> list[Entry]:
        """Remove and return the entries to try again now."""
        if now < self._next_at:
            return []
        taken: list[Entry] = []
        for slot, waiters in list(self._by_slot.items()):
            if waiters.retry_at > now:
                continue
            if waiters.heap:
                taken += waiters.take(partitions, now)
            else:
                del self._by_slot[slot]
        self._entries.difference_update(taken)
        self._budget.blocked = len(self._entries)
        self._next_at = min((waiters.retry_at for waiters in self._by_slot.values()), default=0.0)
        # The present owner of a partition that was lost finds these entries in the store.
        return [entry for entry in taken if entry.partition in partitions]


class _SlotWaiters:
    """Entries that wait for one slot. For an ordering key, executions that exist already go before fires."""

    def __init__(self, is_ordered: bool, retry_at: float) -> None:
        self.heap: list[tuple[bool, int, str, int, Entry]] = []
        """Entries in time order. A serial number tells two entries of one key apart."""
        self.retry_at = retry_at
        self.wait_sec = FIRST_RETRY_SEC
        self.fits = 1
        self.blocked_again = 0
        """Entries that were blocked since the last try."""
        self._is_ordered = is_ordered
        self._tried = 0
        self._limit = 0

    def push(self, entry: Entry) -> None:
        is_after = self._is_ordered and entry.kind == Kind.FIRE
        heappush(self.heap, (is_after, entry.due_ms, entry.key, next(_serial), entry))

    def cut(self, level: int) -> list[Entry]:
        """Keep the first `level` entries. Returns the rest."""
        if len(self.heap) <= level:
            return []
        self.heap.sort()
        dropped = [each[-1] for each in self.heap[level:]]
        del self.heap[level:]
        return dropped

    def take(self, partitions: Collection[int], now: float) -> list[Entry]:
        """Remove and return the next entries to try, and entries of lost partitions before them, which do not count."""
        progressed = self.blocked_again < self._tried
        self.wait_sec = FIRST_RETRY_SEC if progressed or not self._tried else min(2 * self.wait_sec, LONGEST_RETRY_SEC)
        self._limit = self.fits if self.blocked_again else max(self.fits, 2 * self._limit)
        self.retry_at, self.blocked_again, self._tried = now + self.wait_sec, 0, 0
        taken: list[Entry] = []
        while self.heap and self._tried < self._limit:
            entry = heappop(self.heap)[-1]
            taken.append(entry)
            self._tried += entry.partition in partitions
        return taken
