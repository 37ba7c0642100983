"""The bus in the memory of one process. Each process has a new generation, because the memory ends with it."""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import uuid_utils

from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch, LogBatch, LogEntry, Oversized
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock

_SLICE_SEC = 0.1
_SLICES = 10
_MIN_DEPTH = 4
"""Minimum depth of a topic, as a multiple of the concurrency of its workers."""


@dataclass
class _Topic:
    waiting: deque[Dispatch] = field(default_factory=deque)
    taken: deque[tuple[float, int]] = field(default_factory=deque)
    """Number of dispatches taken in each tenth of the last second."""

    def note_taken(self, now: float, count: int) -> None:
        moment = now // _SLICE_SEC
        if self.taken and self.taken[-1][0] == moment:
            self.taken[-1] = (moment, self.taken[-1][1] + count)
        else:
            self.taken.append((moment, count))

    def rate(self, now: float) -> int:
        """Return how many dispatches were taken in the last second."""
        oldest = now // _SLICE_SEC - _SLICES
        while self.taken and self.taken[0][0] <= oldest:
            self.taken.popleft()
        return sum(count for _, count in self.taken)


class _Waiters:
    """Event loops that wait for an arrival. Each is woken in its own thread, once."""

    def __init__(self) -> None:
        self._events: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def wake(self) -> None:
        for loop, event in list(self._events):
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                self._events.discard((loop, event))

    def enter(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        self._events.add(waiter)
        return waiter

    def leave(self, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        self._events.discard(waiter)


class MemoryBus(Bus):
    """A bus with one log partition. Several event loops in several threads may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = str(uuid_utils.uuid4())
        self._topics: dict[str, _Topic] = {}
        self._workers: dict[WorkerId, Mapping[str, int]] = {}
        self._log: deque[LogEntry] = deque()
        self._log_start = 0
        self.dead_letters: deque[tuple[LogEntry, str]] = deque(maxlen=1_000)
        """The last log entries that could not be settled, with the reason."""
        self._takers = _Waiters()
        self._readers = _Waiters()
        self._reporters = _Waiters()
        """Workers that wait until their reports are applied."""

    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        with self._lock:
            for dispatch in dispatches:
                self._topic(dispatch.pool).waiting.append(dispatch)
            self._takers.wake()
        return ()

    async def take(self, worker: WorkerId, room: Mapping[str, int], wait_sec: float) -> list[Dispatch]:
        with self._lock:
            taken = self._take(room)
            if taken or wait_sec <= 0:
                return taken
            waiter = self._takers.enter()
        try:
            await self._wait(waiter[1], wait_sec)
        finally:
            with self._lock:
                self._takers.leave(waiter)
        with self._lock:
            return self._take(room)

    async def mark_processed(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        """Do nothing: this bus delivers each dispatch once."""

    async def credit(self) -> Mapping[str, int]:
        now = self._clock.monotonic()
        with self._lock:
            capacity: dict[str, int] = {}
            for pools in self._workers.values():
                for pool, concurrency in pools.items():
                    capacity[pool] = capacity.get(pool, 0) + concurrency
            return {pool: self._credit_of(self._topic(pool), room, now) for pool, room in capacity.items()}

    async def join(self, worker: WorkerId, pools: Mapping[str, int]) -> int:
        with self._lock:
            self._workers[worker] = dict(pools)
        return 0

    async def leave(self, worker: WorkerId) -> None:
        with self._lock:
            self._workers.pop(worker, None)

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        with self._lock:
            self._log.extend(entries)
            self._readers.wake()
        return ()

    async def report_durably(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        """Append entries and wait until a recorder reads from an offset after them, which means that they are applied."""
        oversized = await self.report(partition, entries)
        with self._lock:
            end = self._log_start + len(self._log)
            waiter = self._reporters.enter()
        try:
            while self._log_start < end:
                waiter[1].clear()
                if self._log_start < end:
                    await waiter[1].wait()
        finally:
            with self._lock:
                self._reporters.leave(waiter)
        return oversized

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        """Return entries from an offset on. Entries before the offset are applied, and are dropped."""
        with self._lock:
            batch = self._read(offset, limit)
            if batch.entries or wait_sec <= 0:
                return batch
            waiter = self._readers.enter()
        try:
            await self._wait(waiter[1], wait_sec)
        finally:
            with self._lock:
                self._readers.leave(waiter)
        with self._lock:
            return self._read(offset, limit)

    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        return None  # Entries that were read are not kept.

    async def keep_dead_letter(self, entry: LogEntry, why: str) -> None:
        with self._lock:
            self.dead_letters.append((entry, why))

    async def partitions(self) -> int:
        return 1

    async def generation(self, partition: int) -> str:
        return self._generation

    def depth(self) -> dict[str, int]:
        """Return how many dispatches wait in each topic."""
        with self._lock:
            return {pool: len(topic.waiting) for pool, topic in self._topics.items()}

    def _topic(self, pool: str) -> _Topic:
        topic = self._topics.get(pool)
        if topic is None:
            topic = self._topics[pool] = _Topic()
        return topic

    def _take(self, room: Mapping[str, int]) -> list[Dispatch]:
        taken: list[Dispatch] = []
        for pool, count in room.items():
            waiting = self._topic(pool).waiting
            count = min(count, len(waiting))
            if count > 0:
                taken += [waiting.popleft() for _ in range(count)]
                self._topics[pool].note_taken(self._clock.monotonic(), count)
        return taken

    def _credit_of(self, topic: _Topic, capacity: int, now: float) -> int:
        return max(0, max(_MIN_DEPTH * capacity, topic.rate(now)) - len(topic.waiting))

    def _read(self, offset: int, limit: int) -> LogBatch:
        applied = self._log_start < offset and bool(self._log)
        while self._log_start < offset and self._log:
            self._log.popleft()
            self._log_start += 1
        if applied:
            self._reporters.wake()
        entries = tuple(islice(self._log, limit))
        first = max(offset, self._log_start)
        return LogBatch(first, first + len(entries), entries)

    async def _wait(self, event: asyncio.Event, wait_sec: float) -> None:
        sleeper = asyncio.ensure_future(self._clock.sleep(wait_sec))
        arrival = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeper, arrival}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            arrival.cancel()
