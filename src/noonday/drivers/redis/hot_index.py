"""The hot index in Redis: every process can place entries, and they outlive their owner."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence

import msgspec
import structlog
import uuid_utils

from noonday.drivers.redis.connection import Command, Connection, Script
from noonday.drivers.redis.heads import Head, Heads, score_of
from noonday.drivers.redis.listener import Listener
from noonday.model.errors import IndexUnavailable
from noonday.model.firing import Entry
from noonday.model.shares import EQUAL, Shares, Within
from noonday.model.turns import QueueName, Turns
from noonday.ports.clock import Clock
from noonday.ports.hot_index import HotIndex

log = structlog.get_logger("noonday.redis")
_PLACE, _PULL, _MISSING = Script("place"), Script("pull"), Script("missing")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode
_decode_all = msgspec.msgpack.Decoder(list[Entry]).decode
_decode_heads = msgspec.msgpack.Decoder(list[Head]).decode

READ_SEC = 1.0
"""Seconds between two reads of all heads. Messages about changed heads may be lost."""
PULL_SEC = 0.02
"""Least seconds between two pulls while enough entries are here for a claim. Often enough for tenants with few, late entries."""
_LEAST_ROOM = 8
_CHUNK = 1_000
"""Most entries of one command inside a script."""

_Queues = dict[QueueName, list[Entry]]
"""Entries of one partition, by queue."""


class RedisHotIndex(HotIndex):
    """Hot index with a sorted set for each partition and (pool, tenant, lane), ordered by the instant an entry is ready.

    The owner pulls ready entries out of all its partitions, some of each queue, into a queue in memory, and claims are served
    from there: fairness across partitions is decided here. If the process dies, the sweeper finds the entries it had pulled.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        lead_ms: int,
        prefix: str = "noonday",
        on_placed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_placed` is called when another process placed an entry that is ready before all known ones."""
        self._connection = connection
        self._clock = clock
        self._lead_ms = lead_ms
        self._prefix = prefix
        self._channel = f"{prefix}:placed"
        self._queue = Turns(lead_ms)
        self._heads = Heads()
        self._read_at = -math.inf
        self._pulled_at = -math.inf
        self._turn = 0
        self._lock = asyncio.Lock()
        self._listener = Listener(
            connection, self._channel, clock, on_message=self._on_heads, on_subscribed=self._on_subscribed
        )
        self._on_placed = on_placed

    async def add(self, entries: Sequence[Entry]) -> None:
        partitions = _by_partition(entries)
        heads: list[Head] = []
        commands = [
            _PLACE(self._key(partition), *self._place_arguments(partition, queues, heads))
            for partition, queues in partitions.items()
        ]
        await self._connection.run([*commands, *self._publish_heads(heads)], IndexUnavailable)
        self._heads.note(heads)

    async def claim(
        self,
        now_ms: int,
        partitions: Collection[int],
        credit: Mapping[str, int],
        limit: int,
        shares: Shares = EQUAL,
    ) -> list[Entry]:
        self._queue.own(partitions)
        await self._refresh_heads(partitions)
        await self._pull(now_ms, partitions, credit, limit)
        return self._queue.claim(now_ms, credit, limit, shares)

    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        elsewhere = self._queue.missing(entries)
        partitions = _by_partition(elsewhere)
        commands = [
            _MISSING(self._key(partition), *_missing_arguments(queues)) for partition, queues in partitions.items()
        ]
        answers = await self._connection.run(commands, IndexUnavailable)
        absent = {
            id(entry)
            for queues, indexes in zip(partitions.values(), answers, strict=True)
            for entry in _entries_at(queues, indexes)
        }
        # Entries that a claim was pulling out of Redis meanwhile are in the queue once the lock is free.
        async with self._lock:
            return self._queue.missing([entry for entry in elsewhere if id(entry) in absent])

    def waiting(self, now_ms: int, credit: Mapping[str, int], tenants: Container[str]) -> Mapping[tuple[str, str], int]:
        return self._queue.waiting(now_ms, credit, tenants)

    async def next_ready_ms(
        self,
        partitions: Collection[int],
        credit: Mapping[str, int],
        patience_ms: int = 0,
        blocked: Container[Within] = (),
    ) -> int | None:
        self._queue.own(partitions)
        await self._refresh_heads(partitions)
        here = self._queue.next_ready_ms(credit, patience_ms, blocked)
        there = self._heads.next_ready_ms(partitions, credit, patience_ms)
        return min((ready_ms for ready_ms in (here, there) if ready_ms is not None), default=None)

    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        self._listener.start()
        new = str(uuid_utils.uuid4())
        commands: list[Command] = [("SET", f"{self._key(each)}:generation", new, "NX", "GET") for each in partitions]
        answers = await self._connection.run(commands, IndexUnavailable)
        return {
            each: generation.decode() if generation else new
            for each, generation in zip(partitions, answers, strict=True)
        }

    async def forget(self, partitions: Collection[int]) -> None:
        """Forget partitions, and put their pulled entries back into Redis for the next owner."""
        async with self._lock:
            self._heads.forget(partitions)
            pulled = self._queue.take_out(partitions)
        # If this fails, the next owner's sweeper finds the entries.
        with contextlib.suppress(IndexUnavailable):
            await self.add(pulled)

    def size(self) -> int:
        return len(self._queue)

    async def close(self) -> None:
        await self._listener.close()

    def _key(self, partition: int) -> str:
        return f"{self._prefix}:{{p:{partition}}}"

    def _place_arguments(self, partition: int, queues: _Queues, heads: list[Head]) -> Iterator[str | bytes | int]:
        lead_ms = self._lead_ms
        for (pool, tenant, lane), entries in _in_chunks(queues):
            scores = [score_of(e.due_ms - lead_ms if e.early else e.due_ms, e.early) for e in entries]
            first = min(scores)
            heads.append((partition, pool, first))
            yield from (pool, f"{lane}:{tenant}", first, len(entries))
            for score, entry in zip(scores, entries, strict=True):
                yield score
                yield _encode(entry)

    def _publish_heads(self, heads: Sequence[Head]) -> list[Command]:
        """Return the command that sends owners the heads that are ready before they read all heads again."""
        until = score_of(self._clock.now_ms() + 2 * int(READ_SEC * 1000), 1)
        urgent = [head for head in heads if head[2] <= until and head[0] not in self._heads]
        return [("PUBLISH", self._channel, _encode(urgent))] if urgent else []

    def _on_heads(self, message: bytes) -> None:
        try:
            heads = _decode_heads(message)
        except msgspec.DecodeError:
            log.warning("unreadable heads", channel=self._channel)
            return
        if self._heads.note(heads):
            self._on_placed()

    def _on_subscribed(self) -> None:
        self._read_at = -math.inf

    async def _refresh_heads(self, partitions: Collection[int]) -> None:
        """Read the heads of partitions that are not known yet; every READ_SEC, read all."""
        self._listener.start()
        now = self._clock.monotonic()
        due = now - self._read_at >= READ_SEC
        stale = [partition for partition in partitions if due or partition not in self._heads]
        if due:
            self._read_at = now
        if stale:
            commands: list[Command] = [("ZRANGE", self._key(each), 0, -1, "WITHSCORES") for each in stale]
            async with self._lock:
                with self._heads.reading():
                    answers = await self._connection.run(commands, IndexUnavailable)
                    for partition, pairs in zip(stale, answers, strict=True):
                        self._heads.read(partition, pairs)

    async def _pull(self, now_ms: int, partitions: Collection[int], credit: Mapping[str, int], limit: int) -> None:
        """Pull ready entries out of Redis: twice as many as can be claimed, so that Redis is asked half as often."""
        async with self._lock:
            demand = self._demand(credit, limit)
            ready = score_of(now_ms, 1)
            due = self._heads.due(partitions, ready, demand) if demand else []
            if not due:
                return
            with self._heads.reading():
                answers = await self._connection.run(self._pull_commands(due, ready, demand), IndexUnavailable)
                for (partition, pools), (_, left) in zip(due, answers, strict=True):
                    self._heads.read_some(partition, pools, left)
            self._pulled_at = self._clock.monotonic()
            self._queue.add(_decode_members([member for pulled, _ in answers for member in pulled]))

    def _demand(self, credit: Mapping[str, int], limit: int) -> dict[str, int]:
        """Return how many entries each pool can use now. Within PULL_SEC of a pull, leaves out pools that have enough here."""
        demand = {pool: min(room, limit) for pool, room in credit.items() if room > 0}
        if self._clock.monotonic() - self._pulled_at >= PULL_SEC:
            return demand
        here: Counter[str] = Counter()
        for (pool, _, _), size in self._queue.sizes():
            here[pool] += size
        return {pool: room for pool, room in demand.items() if here[pool] < room}

    def _pull_commands(
        self, due: Sequence[tuple[int, Sequence[str]]], ready: int, demand: Mapping[str, int]
    ) -> list[Command]:
        self._turn += 1
        partitions = Counter(pool for _, pools in due for pool in pools)
        rooms = {pool: max(_LEAST_ROOM, math.ceil(2 * demand[pool] / partitions[pool])) for pool in partitions}
        full = self._full_queues(demand)
        return [
            _PULL(
                self._key(partition),
                ready,
                self._turn,
                len(pools),
                *(argument for pool in pools for argument in (pool, rooms[pool])),
                *full,
            )
            for partition, pools in due
        ]

    def _full_queues(self, demand: Mapping[str, int]) -> list[str]:
        """Return queues with enough entries here. They are left out of a pull, so that they do not crowd out other queues."""
        sizes = [(name, size) for name, size in self._queue.sizes() if name[0] in demand]
        queues = Counter(pool for (pool, _, _), _ in sizes)
        return [
            f"{len(pool.encode())}:{pool}:{lane}:{tenant}"
            for (pool, tenant, lane), size in sizes
            if size >= max(2 * _LEAST_ROOM, 2 * demand[pool] // queues[pool])
        ]


def _by_partition(entries: Sequence[Entry]) -> dict[int, _Queues]:
    partitions: dict[int, _Queues] = {}
    for entry in entries:
        queues = partitions.get(entry.partition)
        if queues is None:
            queues = partitions[entry.partition] = {}
        name = (entry.pool, entry.tenant, entry.lane)
        queue = queues.get(name)
        if queue is None:
            queues[name] = [entry]
        else:
            queue.append(entry)
    return partitions


def _in_chunks(queues: _Queues) -> Iterator[tuple[QueueName, list[Entry]]]:
    for name, entries in queues.items():
        for start in range(0, len(entries), _CHUNK):
            yield name, entries[start : start + _CHUNK]


def _missing_arguments(queues: _Queues) -> Iterator[str | bytes | int]:
    for (pool, tenant, lane), entries in _in_chunks(queues):
        yield from (pool, f"{lane}:{tenant}", len(entries))
        yield from map(_encode, entries)


def _entries_at(queues: _Queues, indexes: Sequence[int]) -> Iterator[Entry]:
    if indexes:
        entries = [entry for queue in queues.values() for entry in queue]
        yield from (entries[index] for index in indexes)


def _decode_members(members: Sequence[bytes]) -> list[Entry]:
    try:
        # Decoding all as one array is much cheaper than one by one.
        return _decode_all(b"\xdd" + len(members).to_bytes(4, "big") + b"".join(members))
    except msgspec.DecodeError:
        return [entry for member in members for entry in _decode_member(member)]


def _decode_member(member: bytes) -> list[Entry]:
    """Decode one entry. Returns none if its format is unknown (another release wrote it): the sweeper finds its row."""
    try:
        return [_decode(member)]
    except msgspec.DecodeError:
        log.warning("unreadable hot index entry", length=len(member))
        return []
