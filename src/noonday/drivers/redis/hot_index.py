"""The hot index in Redis: every process can place, and what waits outlives its owner."""

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
_decode_news = msgspec.msgpack.Decoder(list[Head]).decode

READ_SEC = 1.0
"""How often heads are read even if nobody says that they changed: what was said may not have been heard."""
PULL_SEC = 0.02
"""While enough is here for a claim, Redis is asked no more often: often enough for those who have little and came late."""
_LEAST_ROOM = 8
_AT_ONCE = 1_000
"""How many entries one command inside a script takes."""

_Parcel = dict[QueueName, list[Entry]]
"""Entries of one partition."""


class RedisHotIndex(HotIndex):
    """For each partition and (pool, tenant, lane) a sorted set by the time when an entry is ready.

    The owner takes what is ready out of all its partitions, some of each queue, and hands it out from a queue of its own: turns
    across partitions are decided here. What was taken and not handed out when the process dies is found by the sweeper.
    """

    def __init__(self, connection: Connection, clock: Clock, lead_ms: int, prefix: str = "noonday") -> None:
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
        self._asking = asyncio.Lock()
        self._listener = Listener(connection, self._channel, clock, heard=self._on_news, joined=self._on_joined)
        self.on_placed: Callable[[], None] = lambda: None
        """Called when another process placed something that is ready before what was known."""

    async def place(self, entries: Sequence[Entry]) -> None:
        parcels = _sorted_out(entries)
        heads: list[Head] = []
        commands = [
            _PLACE(self._key(partition), *self._packed(partition, parcel, heads))
            for partition, parcel in parcels.items()
        ]
        await self._connection.run([*commands, *self._news(heads)], IndexUnavailable)
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
        await self._know(partitions)
        await self._pull(now_ms, partitions, credit, limit)
        return self._queue.claim(now_ms, credit, limit, shares)

    async def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        elsewhere = self._queue.missing(entries)
        parcels = _sorted_out(elsewhere)
        commands = [_MISSING(self._key(partition), *_names(parcel)) for partition, parcel in parcels.items()]
        answers = await self._connection.run(commands, IndexUnavailable)
        absent = {
            id(entry) for parcel, places in zip(parcels.values(), answers, strict=True) for entry in _at(parcel, places)
        }
        # What a claim was just taking out of Redis is in the queue by then.
        async with self._asking:
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
        await self._know(partitions)
        here = self._queue.next_ready_ms(credit, patience_ms, blocked)
        there = self._heads.next_ready_ms(partitions, credit, patience_ms)
        return min((ready_ms for ready_ms in (here, there) if ready_ms is not None), default=None)

    async def generations(self, partitions: Collection[int]) -> Mapping[int, str]:
        self._listener.begin()
        new = str(uuid_utils.uuid4())
        commands: list[Command] = [("SET", f"{self._key(each)}:generation", new, "NX", "GET") for each in partitions]
        answers = await self._connection.run(commands, IndexUnavailable)
        return {
            each: generation.decode() if generation else new
            for each, generation in zip(partitions, answers, strict=True)
        }

    async def forget(self, partitions: Collection[int]) -> None:
        """What was taken out of Redis goes back, so that the next owner finds it."""
        async with self._asking:
            self._heads.forget(partitions)
            taken = self._queue.take_out(partitions)
        # If that fails, its sweeper finds it.
        with contextlib.suppress(IndexUnavailable):
            await self.place(taken)

    def size(self) -> int:
        return len(self._queue)

    async def close(self) -> None:
        await self._listener.close()

    def _key(self, partition: int) -> str:
        return f"{self._prefix}:{{p:{partition}}}"

    def _packed(self, partition: int, parcel: _Parcel, heads: list[Head]) -> Iterator[str | bytes | int]:
        lead_ms = self._lead_ms
        for (pool, tenant, lane), entries in _in_pieces(parcel):
            scores = [score_of(e.due_ms - lead_ms if e.early else e.due_ms, e.early) for e in entries]
            first = min(scores)
            heads.append((partition, pool, first))
            yield from (pool, f"{lane}:{tenant}", first, len(entries))
            for score, entry in zip(scores, entries, strict=True):
                yield score
                yield _encode(entry)

    def _news(self, heads: Sequence[Head]) -> list[Command]:
        """Owners are told of what is ready before they read all heads again."""
        until = score_of(self._clock.now_ms() + 2 * int(READ_SEC * 1000), 1)
        news = [head for head in heads if head[2] <= until and head[0] not in self._heads]
        return [("PUBLISH", self._channel, _encode(news))] if news else []

    def _on_news(self, said: bytes) -> None:
        try:
            news = _decode_news(said)
        except msgspec.DecodeError:
            log.warning("unreadable news", channel=self._channel)
            return
        if self._heads.note(news):
            self.on_placed()

    def _on_joined(self) -> None:
        self._read_at = -math.inf

    async def _know(self, partitions: Collection[int]) -> None:
        """Read the heads of those that we know nothing of, and now and then all."""
        self._listener.begin()
        now = self._clock.monotonic()
        due = now - self._read_at >= READ_SEC
        wanted = [partition for partition in partitions if due or partition not in self._heads]
        if due:
            self._read_at = now
        if wanted:
            commands: list[Command] = [("ZRANGE", self._key(each), 0, -1, "WITHSCORES") for each in wanted]
            async with self._asking:
                with self._heads.reading():
                    answers = await self._connection.run(commands, IndexUnavailable)
                    for partition, pairs in zip(wanted, answers, strict=True):
                        self._heads.read(partition, pairs)

    async def _pull(self, now_ms: int, partitions: Collection[int], credit: Mapping[str, int], limit: int) -> None:
        """Take what is ready out of Redis: twice what can be handed out, so that Redis is asked half as often."""
        async with self._asking:
            wanted = self._wanted(credit, limit)
            ready = score_of(now_ms, 1)
            due = self._heads.due(partitions, ready, wanted) if wanted else []
            if not due:
                return
            with self._heads.reading():
                answers = await self._connection.run(self._pulling(due, ready, wanted), IndexUnavailable)
                for (partition, pools), (_, left) in zip(due, answers, strict=True):
                    self._heads.read_some(partition, pools, left)
            self._pulled_at = self._clock.monotonic()
            self._queue.place(_read([member for taken, _ in answers for member in taken]))

    def _wanted(self, credit: Mapping[str, int], limit: int) -> dict[str, int]:
        """How much each pool could use now. Nothing, if there is enough here and it is early to ask again."""
        wanted = {pool: min(room, limit) for pool, room in credit.items() if room > 0}
        if self._clock.monotonic() - self._pulled_at >= PULL_SEC:
            return wanted
        here: Counter[str] = Counter()
        for (pool, _, _), size in self._queue.sizes():
            here[pool] += size
        return {pool: room for pool, room in wanted.items() if here[pool] < room}

    def _pulling(
        self, due: Sequence[tuple[int, Sequence[str]]], ready: int, wanted: Mapping[str, int]
    ) -> list[Command]:
        self._turn += 1
        places = Counter(pool for _, pools in due for pool in pools)
        rooms = {pool: max(_LEAST_ROOM, math.ceil(2 * wanted[pool] / places[pool])) for pool in places}
        full = self._full(wanted)
        return [
            _PULL(
                self._key(partition),
                ready,
                self._turn,
                len(pools),
                *(word for pool in pools for word in (pool, rooms[pool])),
                *full,
            )
            for partition, pools in due
        ]

    def _full(self, wanted: Mapping[str, int]) -> list[str]:
        """Queues that have enough here: those who wait behind them must not be crowded out."""
        sizes = [(name, size) for name, size in self._queue.sizes() if name[0] in wanted]
        queues = Counter(pool for (pool, _, _), _ in sizes)
        return [
            f"{len(pool.encode())}:{pool}:{lane}:{tenant}"
            for (pool, tenant, lane), size in sizes
            if size >= max(2 * _LEAST_ROOM, 2 * wanted[pool] // queues[pool])
        ]


def _sorted_out(entries: Sequence[Entry]) -> dict[int, _Parcel]:
    parcels: dict[int, _Parcel] = {}
    for entry in entries:
        parcel = parcels.get(entry.partition)
        if parcel is None:
            parcel = parcels[entry.partition] = {}
        name = (entry.pool, entry.tenant, entry.lane)
        queue = parcel.get(name)
        if queue is None:
            parcel[name] = [entry]
        else:
            queue.append(entry)
    return parcels


def _in_pieces(parcel: _Parcel) -> Iterator[tuple[QueueName, list[Entry]]]:
    for name, entries in parcel.items():
        for start in range(0, len(entries), _AT_ONCE):
            yield name, entries[start : start + _AT_ONCE]


def _names(parcel: _Parcel) -> Iterator[str | bytes | int]:
    for (pool, tenant, lane), entries in _in_pieces(parcel):
        yield from (pool, f"{lane}:{tenant}", len(entries))
        yield from map(_encode, entries)


def _at(parcel: _Parcel, places: Sequence[int]) -> Iterator[Entry]:
    if places:
        entries = [entry for queue in parcel.values() for entry in queue]
        yield from (entries[place] for place in places)


def _read(members: Sequence[bytes]) -> list[Entry]:
    try:
        # All as one array: much cheaper than one by one.
        return _decode_all(b"\xdd" + len(members).to_bytes(4, "big") + b"".join(members))
    except msgspec.DecodeError:
        return [entry for member in members for entry in _read_one(member)]


def _read_one(member: bytes) -> list[Entry]:
    """Nothing, if it was written by somebody we do not understand: the sweeper finds what it stood for."""
    try:
        return [_decode(member)]
    except msgspec.DecodeError:
        log.warning("unreadable entry", length=len(member))
        return []
