"""The bus on Kafka."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import TypeVar

import msgspec
import structlog

from noonday.crypto.keyring import Keyring
from noonday.crypto.signature import Signer
from noonday.drivers.kafka.codec import Codec, KafkaMessage, Packed
from noonday.drivers.kafka.credit import Meter
from noonday.drivers.kafka.log import Log
from noonday.drivers.kafka.member import Member
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.sender import Sender
from noonday.drivers.kafka.thread import ClientThread, first_of
from noonday.drivers.kafka.topics import Topics
from noonday.model.errors import BusUnavailable, PayloadTooLarge
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch, LogEntry
from noonday.ports.bus import Bus, LogBatch, Oversized
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.kafka")
T = TypeVar("T", bound=Dispatch | LogEntry)


class KafkaBus(Bus):
    """For one event loop. What it starts ends with `close`."""

    def __init__(self, options: KafkaOptions, keyring: Keyring, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._names = Names(options.prefix)
        self._codec = Codec(Signer(keyring), options.pack_bytes)
        self._topics = Topics(options, self._names)
        self._meter = Meter(options, self._names, self._topics, clock)
        self._log = Log(options, self._names, self._codec, self._topics, clock)
        self._sender: Sender | None = None
        self._workers: dict[WorkerId, _Worker] = {}
        self._turns: dict[tuple[str, int], Iterator[int]] = {}

    @property
    def refused(self) -> int:
        """How many messages were dropped because none of our keys had signed them, or nobody could read them."""
        return self._codec.refused

    def on_refused(self, tell: Callable[[str], None]) -> None:
        """Have each of them told, with its topic, in whatever thread finds it."""
        self._codec.on_refused = tell

    async def start(self) -> None:
        """Begin to measure the pools. Without it, the first question about credit does.

        Raises BadSettings if a topic accepts less than our largest message. A broker that is away cannot be asked: then a
        dispatch or report that is too large fails alone when its time comes.
        """
        with contextlib.suppress(BusUnavailable):
            await self._topics.refuse_small_messages()
        self._meter.start_once()
        await self._working_sender()

    async def close(self) -> None:
        """Leave all groups and end all threads. What is not acknowledged by now may or may not arrive."""
        members = [member for worker in self._workers.values() for member in worker.members]
        self._workers.clear()
        senders = [self._sender] if self._sender is not None else []
        self._sender = None
        await self._stop(self._meter, *senders, *self._log.readers, *members)
        self._topics.close()

    async def publish(self, dispatches: Sequence[Dispatch]) -> Sequence[Oversized[Dispatch]]:
        lanes = _by_lane(dispatches)
        for pool in {pool for pool, _ in lanes}:
            await self._topics.ensure_pool(pool)
        packs = [pack for (pool, lane), some in lanes.items() for pack in self._packs(pool, lane, some)]
        for (pool, _), some in lanes.items():
            self._meter.publishing(pool, len(some))
        try:
            return await self._deliver(packs, lambda dispatch: self._packs(dispatch.pool, dispatch.lane, [dispatch]))
        finally:
            for (pool, _), some in lanes.items():
                self._meter.published(pool, len(some))

    async def take(self, worker: WorkerId, room: Mapping[str, int], wait_sec: float) -> list[Dispatch]:
        here = self._workers.get(worker)
        if here is None:
            await self._clock.sleep(wait_sec)
            return []
        here.expect(room, 1)
        try:
            return await first_of(lambda: here.take(room), here.arrived, self._clock, wait_sec)
        finally:
            here.expect(room, -1)

    async def done_with(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        here = self._workers.get(worker)
        if here is not None:
            here.done(dispatches)

    async def credit(self) -> Mapping[str, int]:
        self._meter.start_once()
        return self._meter.credit()

    async def join(self, worker: WorkerId, pools: Mapping[str, int]) -> int:
        await self.leave(worker)
        for pool in pools:
            await self._topics.ensure_pool(pool)
        partition = await self._log.choose_partition()
        here = self._workers[worker] = _Worker()
        for pool, concurrency in pools.items():
            here.open(
                pool,
                Member(
                    self._options,
                    self._names,
                    self._codec,
                    self._clock,
                    worker=worker,
                    pool=pool,
                    concurrency=concurrency,
                    on_arrival=here.arrived.set,
                ),
            )
        self._meter.discover_soon()
        await self._working_sender()
        return partition

    async def leave(self, worker: WorkerId) -> None:
        here = self._workers.pop(worker, None)
        if here is not None:
            await self._stop(*here.members)

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        await self._topics.ensure_log()
        log = self._names.log
        packs = self._codec.entries(log, partition, entries)
        return await self._deliver(packs, lambda entry: self._codec.entries(log, partition, [entry]))

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        return await self._log.read(partition, offset, limit, wait_sec)

    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        return await self._log.offset_since(partition, since_ms)

    async def bury(self, entry: LogEntry, why: str) -> None:
        await self._topics.ensure_dead_letters()
        said = {"why": why, "atMs": self._clock.now_ms(), "entry": entry}
        await self._send([self._codec.plain(self._names.dead_letters, msgspec.json.encode(said))])

    async def partitions(self) -> int:
        return await self._topics.log_partitions()

    async def generation(self, partition: int) -> str:
        return await self._log.generation(partition)

    def _packs(self, pool: str, lane: int, dispatches: Sequence[Dispatch]) -> list[Packed[Dispatch]]:
        topic = self._names.topics_of(pool)[lane]
        share = self._topics.partitions_of(topic)
        turns = self._turns.get((topic, share))
        if turns is None:
            # Not all schedulers begin with the same one.
            turns = islice(cycle(range(share)), random.randrange(share), None)
            self._turns[topic, share] = turns
        return self._codec.packs(topic, dispatches, turns, share)

    async def _deliver(
        self, packs: Sequence[Packed[T]], pack_alone: Callable[[T], Sequence[Packed[T]]]
    ) -> Sequence[Oversized[T]]:
        """Send messages. Those that are refused for their size are sent again entry by entry, so that an entry that is too
        large by itself is the only one that stays behind."""
        limit = self._options.pack_bytes
        fitting = [pack for pack in packs if len(pack.message.value) <= limit]
        oversized = [_oversized(pack, limit) for pack in packs if len(pack.message.value) > limit]
        try:
            await self._send([pack.message for pack in fitting])
        except PayloadTooLarge:
            # The brokers accept less than we were told. Doubles of what arrived are dropped by whoever reads them.
            if len(fitting) == 1 and len(fitting[0].values) == 1:
                return [*oversized, _oversized(fitting[0], limit)]
            for pack in fitting:
                for value in pack.values:
                    oversized += await self._deliver(pack_alone(value), pack_alone)
        return oversized

    async def _send(self, messages: Sequence[KafkaMessage]) -> None:
        """Raises PayloadTooLarge if the broker refuses one for its size; the others may have arrived."""
        if not messages:
            return
        sender = await self._working_sender()
        try:
            await sender.send(messages)
        except BusUnavailable:
            self._topics.forget(message.topic for message in messages)
            raise

    async def _working_sender(self) -> Sender:
        """There is one that works. It needs half a second before it can send: better to have it early."""
        old = self._sender
        if old is not None and not old.broken:
            return old
        sender = self._sender = Sender(self._options)
        sender.start()
        if old is not None:
            await self._stop(old)
        return sender

    async def _stop(self, *threads: ClientThread) -> None:
        stopping = [thread.stop(self._options.end_within_sec) for thread in threads]
        for outcome in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(outcome, BusUnavailable):
                log.error("a client stays behind", error=outcome.detail)
            elif outcome is not None:
                raise outcome


class _Worker:
    """One worker that is here: a member of the group of each of its pools."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self._members: dict[str, Member] = {}

    @property
    def members(self) -> list[Member]:
        return list(self._members.values())

    def open(self, pool: str, member: Member) -> None:
        self._members[pool] = member
        member.start()

    def take(self, room: Mapping[str, int]) -> list[Dispatch]:
        taken: list[Dispatch] = []
        for pool, count in room.items():
            member = self._members.get(pool)
            if member is not None and count > 0:
                taken += member.take(count)
        return taken

    def expect(self, room: Mapping[str, int], takers: int) -> None:
        """So many more are waiting now for something to arrive."""
        for pool, count in room.items():
            if count > 0 and pool in self._members:
                self._members[pool].takers += takers

    def done(self, dispatches: Sequence[Dispatch]) -> None:
        by_pool: dict[str, list[Dispatch]] = {}
        for dispatch in dispatches:
            by_pool.setdefault(dispatch.pool, []).append(dispatch)
        for pool, some in by_pool.items():
            member = self._members.get(pool)
            if member is not None:
                member.done(some)


def _oversized(pack: Packed[T], limit: int) -> Oversized[T]:
    return Oversized(pack.values[0], len(pack.message.value), limit)


def _by_lane(dispatches: Sequence[Dispatch]) -> dict[tuple[str, int], list[Dispatch]]:
    lanes: dict[tuple[str, int], list[Dispatch]] = {}
    for dispatch in dispatches:
        lane = lanes.get((dispatch.pool, dispatch.lane))
        if lane is None:
            lane = lanes[dispatch.pool, dispatch.lane] = []
        lane.append(dispatch)
    return lanes
