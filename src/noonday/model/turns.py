"""Fair order of claims: entries that wait for their time, and the order in which ready ones are claimed."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from noonday.model.budget import EntryBudget, fair_level
from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS
from noonday.model.shares import EQUAL, Shares, Within

SHARES = (16, 4, 1)
"""Shares of HIGH, NORMAL and LOW within a tenant, when all three have ready entries."""

MOST_AT_ONCE = 16
"""Maximum number of entries that a tenant of weight 1 takes per turn, so that a tenant with few does not wait for long."""

MOST_OF_A_TENANT = 100_000
"""Maximum number of entries of one tenant in an index that is kept in memory. The rest stay in the store until there is room."""

TimelinePosition = tuple[int, str]
"""A position on the timeline: (due_ms, key)."""
QueueName = tuple[str, str, int]
"""(pool, tenant, lane)."""
_Waiting = tuple[int, int, Entry]
_Member = tuple[str, int, int]
_MANY = 10_000


class _Order:
    """The order in which tenants of a pool take turns: weighted fair queueing.

    Each tenant has a virtual clock. Taking entries advances the clock, the more slowly the larger the tenant's weight. The tenant
    whose clock is furthest behind is next. A tenant that had nothing ready gets no credit for that time.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, str]] = []
        self._clocks: dict[str, float] = {}
        self._now = 0.0
        self._serial = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def tenants(self) -> Iterator[str]:
        return (tenant for _, _, tenant in self._waiting)

    def join(self, tenant: str) -> None:
        """Add a tenant that has something ready. Its clock is set to the present one if it is behind."""
        now = self._waiting[0][0] if self._waiting else self._now
        self._clocks[tenant] = max(self._clocks.get(tenant, 0.0), now)
        self.enter(tenant)

    def enter(self, tenant: str) -> None:
        """Add a tenant again after its turn."""
        self._serial += 1
        heappush(self._waiting, (self._clocks[tenant], self._serial, tenant))

    def take_next(self) -> str:
        self._now, _, tenant = heappop(self._waiting)
        return tenant

    def move_on(self, tenant: str, measure: float) -> None:
        self._clocks[tenant] += measure
        if len(self._clocks) > 2 * len(self._waiting) + _MANY:
            self._clocks = {name: clock for name, clock in self._clocks.items() if clock > self._now}
            self._clocks.setdefault(tenant, self._now)


class Turns:
    """A hot index in memory: a heap for each (pool, tenant, lane), and a heap of those heaps by when their first entry is ready.

    Waiting entries cost nothing: a claim touches only heaps that have something ready. Tenants take turns by weight. Within a
    tenant, lanes share 16:4:1; within a lane, entries are ordered by time. Dropping partitions costs little: an entry that is in
    a heap and is no member any more is skipped when its time comes.
    """

    def __init__(self, lead_ms: int, most_of_a_tenant: int | None = None, budget: EntryBudget | None = None) -> None:
        self._lead_ms = lead_ms
        self._most = most_of_a_tenant
        self._budget = budget
        self._total = 0
        """Number of entries in all queues."""
        self._level: int | None = None
        """Number of entries that each tenant kept when the budget was last exceeded."""
        self._of_tenant: Counter[str] = Counter()
        """Number of entries in the queues of each tenant."""
        self._latest: dict[str, int] = {}
        """The latest due time that was added, by tenant. Kept only if tenants have a limit."""
        self._left_out: dict[str, TimelinePosition] = {}
        """Tenants with too many entries: none from this position on was added."""
        self._members: dict[int, set[_Member]] = {}
        """The entries that are here, by partition."""
        self._queues: dict[QueueName, list[_Waiting]] = {}
        self._asleep: list[tuple[int, QueueName]] = []
        """Heads of queues that had nothing ready when last examined. May name a queue twice, or too early."""
        self._awake: dict[str, _Order] = {}
        """The tenants that have something ready, by pool."""
        self._ready: dict[tuple[str, str], set[int]] = {}
        """The lanes that have something ready, by (pool, tenant)."""
        self._left: dict[tuple[str, str], list[int]] = {}
        """The rest of each lane's share in the present round, which may take many claims."""
        self._foreign: set[int] = set()
        """Partitions that this process does not own at present."""
        self._aside: dict[int, list[Entry]] = {}
        """Ready entries of foreign partitions."""
        self._serial = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries. Adding an entry twice changes nothing. Later entries of a tenant that has too many are left out."""
        self._add(entries)
        if self._budget is not None and self._total > self._budget.for_index:
            self._cut(self._budget.for_index * 7 // 8)

    def _add(self, entries: Iterable[Entry]) -> None:
        members = self._members
        for entry in entries:
            here = members.get(entry.partition)
            if here is None:
                here = members[entry.partition] = set()
            member = (entry.key, entry.number, entry.nominal_ms)
            if member not in here and not (self._most and self._leaves_out(entry)):
                here.add(member)
                self._push(entry)

    def omitted(self) -> dict[str, TimelinePosition]:
        """Return tenants that have room again, and the position from which on their entries may be missing."""
        if self._budget is not None and self._total <= self._budget.for_index // 2:
            self._level = None
        enough = self.room() // 2
        return {tenant: first for tenant, first in self._left_out.items() if self._of_tenant[tenant] <= enough}

    def room(self) -> int:
        """Return how many entries a tenant that has none here may add at present."""
        most = self._most or 0
        return most if self._level is None else min(most, self._level)

    def readmit(self, tenant: str, until: TimelinePosition | None) -> None:
        """Announce that a tenant's entries before a position, or all of them if None, are about to be added."""
        if until is None:
            del self._left_out[tenant]
        else:
            self._left_out[tenant] = until

    def _leaves_out(self, entry: Entry) -> bool:
        """Return whether an entry is left out. An entry that is due before another one of its tenant is always added."""
        tenant, due_ms = entry.tenant, entry.due_ms
        first = self._left_out.get(tenant)
        if first is not None:
            return (due_ms, entry.key) >= first
        if self._of_tenant[tenant] < (self._most or 0):
            if due_ms > self._latest.get(tenant, 0):
                self._latest[tenant] = due_ms
            return False
        if due_ms < self._latest[tenant]:
            return False
        self._left_out[tenant] = (due_ms, entry.key)
        return True

    def own(self, partitions: Collection[int]) -> None:
        """Claim from these partitions only, from now on. Entries of others stay until they are dropped or owned again."""
        if self._foreign or (len(partitions) < PARTITIONS and not all(map(partitions.__contains__, self._members))):
            self._foreign = {partition for partition in self._members if partition not in partitions}
            for partition in self._aside.keys() - self._foreign:
                for entry in self._aside.pop(partition):
                    self._push(entry)

    def claim(self, now_ms: int, credit: Mapping[str, int], limit: int, shares: Shares = EQUAL) -> list[Entry]:
        """Remove and return ready entries, for no pool more than its credit. A pool that `credit` does not name has none."""
        self._wake(now_ms)
        claimed: list[Entry] = []
        for pool in list(self._awake):
            room = min(credit.get(pool, 0), limit - len(claimed))
            if room > 0:
                self._claim_pool(pool, now_ms, room, claimed, shares)
        return claimed

    def waiting(self, now_ms: int, credit: Mapping[str, int], tenants: Container[str]) -> dict[tuple[str, str], int]:
        """Return an upper bound of the ready entries of some tenants in pools with credit, by (pool, tenant)."""
        self._wake(now_ms)
        return {
            (pool, tenant): sum(len(self._queues[pool, tenant, lane]) for lane in lanes)
            for (pool, tenant), lanes in self._ready.items()
            if tenant in tenants and credit.get(pool, 0) > 0
        }

    def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        members = self._members
        return [e for e in entries if (e.key, e.number, e.nominal_ms) not in members.get(e.partition, ())]

    def next_ready_ms(
        self, credit: Mapping[str, int], patience_ms: int = 0, blocked: Container[Within] = ()
    ) -> int | None:
        """Return when the earliest entry of a pool with credit is ready, or `patience_ms` later if it is an early one.

        Ready entries of blocked tenants do not count.
        """
        if self._foreign and len(self._foreign) == len(self._members):
            return None
        heads = [
            self._queues[pool, tenant, lane][0][0]
            for (pool, tenant), lanes in self._ready.items()
            if credit.get(pool, 0) > 0 and tenant not in blocked and (pool, tenant) not in blocked
            for lane in lanes
        ]
        if self._asleep:
            ready_ms, name = self._asleep[0]
            queue = self._queues.get(name)
            heads.append(ready_ms + patience_ms if queue and queue[0][2].early else ready_ms)
        return min(heads, default=None)

    def sizes(self) -> Iterator[tuple[QueueName, int]]:
        """Return the number of entries in each queue that is not empty."""
        return ((name, len(queue)) for name, queue in self._queues.items())

    def drop(self, partitions: Collection[int]) -> None:
        """Remove all entries of these partitions."""
        for partition in partitions:
            self._members.pop(partition, None)
            self._aside.pop(partition, None)
            self._foreign.discard(partition)
        if sum(map(len, self._queues.values())) > 2 * len(self) + _MANY:
            self._tidy()

    def take_out(self, partitions: Collection[int]) -> list[Entry]:
        """Remove and return all entries of these partitions."""
        gone = set(partitions)
        taken = [entry for entry in self._all() if entry.partition in gone]
        self.drop(gone)
        return taken

    def __len__(self) -> int:
        return sum(map(len, self._members.values()))

    def _all(self) -> list[Entry]:
        entries = {entry: None for queue in self._queues.values() for _, _, entry in queue}
        entries.update((entry, None) for aside in self._aside.values() for entry in aside)
        missing = set(self.missing(list(entries)))
        return [entry for entry in entries if entry not in missing]

    def _tidy(self) -> None:
        entries = self._all() if self._members else []
        kept = (self._members, self._queues, self._asleep, self._awake, self._ready, self._left, self._aside)
        for part in (*kept, self._of_tenant, self._latest):
            part.clear()
        self._total = 0
        self._add(entries)

    def _cut(self, room: int) -> None:
        """Keep the earliest entries of each tenant, equally many of those that have the most. The rest stay in the store."""
        if len(self) < self._total:
            self._tidy()
        self._level = level = fair_level(self._of_tenant.values(), room)
        queues: dict[str, list[list[_Waiting]]] = {}
        for (_, tenant, _), queue in self._queues.items():
            if self._of_tenant[tenant] > level:
                queues.setdefault(tenant, []).append(queue)
        for tenant, of_tenant in queues.items():
            first = _position_of_nth([entry for queue in of_tenant for _, _, entry in queue], level)
            self._left_out[tenant] = min(first, self._left_out.get(tenant, first))
            self._latest[tenant] = first[0]
            for queue in of_tenant:
                self._cut_queue(queue, first)

    def _cut_queue(self, queue: list[_Waiting], first: TimelinePosition) -> None:
        """Remove entries from `first` on. The head stays, whatever its time: `_asleep` and `_ready` know the queue by it."""
        kept, head = [], queue[0]
        for each in queue:
            entry = each[2]
            if (entry.due_ms, entry.key) < first or each is head:
                kept.append(each)
            else:
                self._members[entry.partition].discard((entry.key, entry.number, entry.nominal_ms))
        self._of_tenant[head[2].tenant] += len(kept) - len(queue)
        self._total += len(kept) - len(queue)
        heapify(kept)
        queue[:] = kept

    def _push(self, entry: Entry) -> None:
        ready_ms = entry.due_ms - self._lead_ms if entry.early else entry.due_ms
        name = (entry.pool, entry.tenant, entry.lane)
        queue = self._queues.setdefault(name, [])
        self._of_tenant[entry.tenant] += 1
        self._total += 1
        self._serial += 1
        heappush(queue, (ready_ms, self._serial, entry))
        if queue[0][2] is entry and entry.lane not in self._ready.get((entry.pool, entry.tenant), ()):
            heappush(self._asleep, (ready_ms, name))

    def _wake(self, now_ms: int) -> None:
        while self._asleep and self._asleep[0][0] <= now_ms:
            _, name = heappop(self._asleep)
            pool, tenant, lane = name
            queue = self._queues.get(name)
            if not queue or queue[0][0] > now_ms:
                continue
            lanes = self._ready.setdefault((pool, tenant), set())
            if not lanes:
                self._awake.setdefault(pool, _Order()).join(tenant)
            lanes.add(lane)

    def _claim_pool(self, pool: str, now_ms: int, room: int, claimed: list[Entry], shares: Shares) -> None:
        """Let tenants take turns until the room is used up or nothing that may be taken is ready."""
        order, blocked = self._awake[pool], []
        quantum = (
            room if len(order) == 1 else min(MOST_AT_ONCE, max(1, room // sum(map(shares.weight, order.tenants()))))
        )
        while room > 0 and order:
            tenant = order.take_next()
            weight = shares.weight(tenant)
            may_take = min(room, shares.room(pool, tenant), quantum * weight)
            if may_take <= 0:
                blocked.append(tenant)
                continue
            taken = self._claim_tenant(pool, tenant, now_ms, may_take, claimed)
            room -= taken
            shares.took(pool, tenant, taken)
            order.move_on(tenant, taken / weight)
            if self._ready[pool, tenant]:
                order.enter(tenant)
            else:
                del self._ready[pool, tenant], self._left[pool, tenant]
        for tenant in blocked:
            order.join(tenant)
        if not order:
            del self._awake[pool]

    def _claim_tenant(self, pool: str, tenant: str, now_ms: int, room: int, claimed: list[Entry]) -> int:
        lanes = self._ready[pool, tenant]
        left = self._left.setdefault((pool, tenant), list(SHARES))
        start = len(claimed)
        while lanes and room > 0:
            if not any(left[lane] for lane in lanes):
                left[:] = SHARES
            only = len(lanes) == 1
            for lane in sorted(lanes):
                quota = room if only else min(room, left[lane])
                taken = self._drain((pool, tenant, lane), now_ms, quota, claimed)
                left[lane] = max(0, left[lane] - taken)
                room -= taken
                if room <= 0:
                    break
        return len(claimed) - start

    def _drain(self, name: QueueName, now_ms: int, quota: int, claimed: list[Entry]) -> int:
        queue, members, foreign = self._queues[name], self._members, self._foreign
        taken, before = 0, len(queue)
        while taken < quota and queue and queue[0][0] <= now_ms:
            entry = heappop(queue)[2]
            if foreign and entry.partition in foreign:
                self._put_aside(entry)
                continue
            try:
                members[entry.partition].remove((entry.key, entry.number, entry.nominal_ms))
            except KeyError:
                # The partition of the entry was dropped.
                continue
            claimed.append(entry)
            taken += 1
        self._of_tenant[name[1]] += len(queue) - before
        self._total += len(queue) - before
        if not queue or queue[0][0] > now_ms:
            pool, tenant, lane = name
            self._ready[pool, tenant].discard(lane)
            if queue:
                heappush(self._asleep, (queue[0][0], name))
            else:
                del self._queues[name]
        return taken

    def _put_aside(self, entry: Entry) -> None:
        if not self.missing([entry]):
            self._aside.setdefault(entry.partition, []).append(entry)


def _position_of_nth(entries: Sequence[Entry], nth: int) -> TimelinePosition:
    """Return the position of the entry that has `nth` entries before it. Times are compared first, because most differ."""
    dues = sorted(entry.due_ms for entry in entries)
    due_ms = dues[nth]
    keys = sorted(entry.key for entry in entries if entry.due_ms == due_ms)
    return due_ms, keys[nth - bisect_left(dues, due_ms)]
