"""The hot index in the owner's process."""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import uuid_utils

from noonday.model.firing import Entry
from noonday.ports.hot_index import HotIndex

SHARES = (16, 4, 1)
"""HIGH, NORMAL, LOW within a tenant, when all have work that is ready."""

_Waiting = tuple[int, int, Entry]
_Queue = tuple[str, str, int]
"""(pool, tenant, lane)."""


class MemoryHotIndex(HotIndex):
    """A heap for each (pool, tenant, lane), and a heap of those heaps by when their first entry is ready.

    What waits costs nothing: a claim touches only the heaps that have something ready.
    """

    def __init__(self, lead_ms: int) -> None:
        self._lead_ms = lead_ms
        self._era = str(uuid_utils.uuid4())
        self._members: set[tuple[str, int, int]] = set()
        self._queues: dict[_Queue, list[_Waiting]] = {}
        self._asleep: list[tuple[int, _Queue]] = []
        """Heads of queues that had nothing ready when last looked at. May name a queue twice, or too early."""
        self._awake: dict[str, deque[str]] = {}
        """For each pool the tenants that have something ready, in turn."""
        self._ready: dict[tuple[str, str], set[int]] = {}
        self._left: dict[tuple[str, str], list[int]] = {}
        """What is left of each lane's share in a round that may take many claims."""
        self._serial = 0

    async def place(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            member = (entry.key, entry.number, entry.nominal_ms)
            if member not in self._members:
                self._members.add(member)
                self._push(entry)

    async def claim(self, now_ms: int, credit: Mapping[str, int], limit: int) -> list[Entry]:
        self._wake(now_ms)
        claimed: list[Entry] = []
        for pool in list(self._awake):
            room = min(credit.get(pool, 0), limit - len(claimed))
            if room > 0:
                self._claim_pool(pool, now_ms, room, claimed)
        for entry in claimed:
            self._members.discard((entry.key, entry.number, entry.nominal_ms))
        return claimed

    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        return [e for e in entries if (e.key, e.number, e.nominal_ms) not in self._members]

    async def next_ready_ms(self, credit: Mapping[str, int], patience_ms: int = 0) -> int | None:
        heads = [
            self._queues[pool, tenant, lane][0][0]
            for (pool, tenant), lanes in self._ready.items()
            if credit.get(pool, 0) > 0
            for lane in lanes
        ]
        if self._asleep:
            ready_ms, name = self._asleep[0]
            queue = self._queues.get(name)
            heads.append(ready_ms + patience_ms if queue and queue[0][2].staged else ready_ms)
        return min(heads, default=None)

    async def era(self) -> str:
        return self._era

    async def forget(self, partitions: Sequence[int]) -> None:
        gone = set(partitions)
        kept = [e for queue in self._queues.values() for _, _, e in queue if e.partition not in gone]
        self._members.clear()
        self._queues.clear()
        self._asleep.clear()
        self._awake.clear()
        self._ready.clear()
        self._left.clear()
        await self.place(kept)

    def __len__(self) -> int:
        return len(self._members)

    def _push(self, entry: Entry) -> None:
        ready_ms = entry.due_ms - self._lead_ms if entry.staged else entry.due_ms
        name = (entry.pool, entry.tenant, entry.lane)
        queue = self._queues.setdefault(name, [])
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
                self._awake.setdefault(pool, deque()).append(tenant)
            lanes.add(lane)

    def _claim_pool(self, pool: str, now_ms: int, room: int, claimed: list[Entry]) -> None:
        """Tenants take turns of equal size until the room is used up or nothing is ready."""
        turns = self._awake[pool]
        while room > 0 and turns:
            share = max(1, room // len(turns))
            for _ in range(min(len(turns), room)):
                tenant = turns.popleft()
                room -= self._claim_tenant(pool, tenant, now_ms, share, claimed)
                if self._ready[pool, tenant]:
                    turns.append(tenant)
                else:
                    del self._ready[pool, tenant], self._left[pool, tenant]
        if not turns:
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

    def _drain(self, name: _Queue, now_ms: int, quota: int, claimed: list[Entry]) -> int:
        queue = self._queues[name]
        taken = 0
        while taken < quota and queue and queue[0][0] <= now_ms:
            claimed.append(heappop(queue)[2])
            taken += 1
        if not queue or queue[0][0] > now_ms:
            pool, tenant, lane = name
            self._ready[pool, tenant].discard(lane)
            if queue:
                heappush(self._asleep, (queue[0][0], name))
            else:
                del self._queues[name]
        return taken
