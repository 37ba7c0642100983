"""Due entries that a concurrency key or an ordering key blocks."""

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from itertools import count

from noonday.model.budget import EntryBudget, fair_level
from noonday.model.firing import Entry, Kind
from noonday.model.slots import SlotKey, is_of_ordering_key
from noonday.ports.firing import Blocked

SOON_SEC = 0.5
LATE_SEC = 2.0
"""How soon blocked entries are tried again at first, and at the latest, if no slot is reported free."""
MORE = 2
"""Besides those that could go: some may be stale."""
_serial = count()


class BlockedEntries:
    """Entries that wait for a slot, by slot.

    Thousands may wait for one slot, so only about as many as fit are tried again, the earliest first. If none of them comes
    back, they were stale or belong to another owner now, and twice as many are tried next.
    """

    def __init__(self, budget: EntryBudget) -> None:
        """Entries beyond their part of the budget are dropped, the latest first; the sweeper finds them again."""
        self._budget = budget
        self._by_slot: dict[SlotKey, _Waiting] = {}
        self._entries: set[Entry] = set()
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._entries

    def add(self, blocked: Sequence[Blocked], now: float) -> None:
        for each in blocked:
            waiting = self._by_slot.get(each.slot)
            if waiting is None:
                waiting = self._by_slot[each.slot] = _Waiting(is_of_ordering_key(each.slot[1]), now + SOON_SEC)
                self._next_at = min(self._next_at, waiting.at)
            waiting.back += 1
            waiting.fits = 2 * each.limit + MORE
            if each.entry not in self._entries:
                self._entries.add(each.entry)
                waiting.push(each.entry)
        if len(self._entries) > self._budget.for_blocked:
            self._cut(self._budget.for_blocked * 7 // 8)
        self._budget.blocked = len(self._entries)

    def _cut(self, room: int) -> None:
        """Keep the first of each slot, equally many of those that most wait for."""
        level = fair_level((len(waiting.heap) for waiting in self._by_slot.values()), room)
        for waiting in self._by_slot.values():
            self._entries.difference_update(waiting.cut(level))

    def release(self, names: Collection[str] | None = None) -> None:
        """Something was freed: of what waits for it the first are tried at once. `names`: of these slots; None: of all."""
        for (_, name), waiting in self._by_slot.items():
            if names is None or name in names:
                waiting.at, waiting.pause = 0.0, SOON_SEC
                self._next_at = 0.0

    def take(self, partitions: Collection[int], now: float) -> list[Entry]:
        """Those to try again now."""
        if now < self._next_at:
            return []
        taken: list[Entry] = []
        for slot, waiting in list(self._by_slot.items()):
            if waiting.at > now:
                continue
            if waiting.heap:
                taken += waiting.take(partitions, now)
            else:
                del self._by_slot[slot]
        self._entries.difference_update(taken)
        self._budget.blocked = len(self._entries)
        self._next_at = min((waiting.at for waiting in self._by_slot.values()), default=0.0)
        # Whoever has a partition now that is not ours any more knows it from the store.
        return [entry for entry in taken if entry.partition in partitions]


class _Waiting:
    """What waits for one slot. In a line, executions that exist already go before fires."""

    def __init__(self, is_line: bool, at: float) -> None:
        self.heap: list[tuple[bool, int, str, int, Entry]] = []
        """In the order of time; a number of its own tells apart two entries of one key."""
        self.at = at
        self.pause = SOON_SEC
        self.fits = 1
        self.back = 0
        """How many were blocked since the last try."""
        self._is_line = is_line
        self._tried = 0
        self._most = 0

    def push(self, entry: Entry) -> None:
        is_last = self._is_line and entry.kind == Kind.FIRE
        heappush(self.heap, (is_last, entry.due_ms, entry.key, next(_serial), entry))

    def cut(self, level: int) -> list[Entry]:
        """Keep so many, the first. Returns the rest."""
        if len(self.heap) <= level:
            return []
        self.heap.sort()
        gone = [each[-1] for each in self.heap[level:]]
        del self.heap[level:]
        return gone

    def take(self, partitions: Collection[int], now: float) -> list[Entry]:
        """The next ones, and what is not ours any more before them."""
        went = self.back < self._tried
        self.pause = SOON_SEC if went or not self._tried else min(2 * self.pause, LATE_SEC)
        self._most = self.fits if self.back else max(self.fits, 2 * self._most)
        self.at, self.back, self._tried = now + self.pause, 0, 0
        taken: list[Entry] = []
        while self.heap and self._tried < self._most:
            entry = heappop(self.heap)[-1]
            taken.append(entry)
            self._tried += entry.partition in partitions
        return taken
