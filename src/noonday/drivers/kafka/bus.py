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
from noonday.drivers.kafka.codec import Codec, KafkaMessage, PackedMessage, ignore
from noonday.drivers.kafka.credit import CreditMeter
from noonday.drivers.kafka.log import Log
from noonday.drivers.kafka.member import Member
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.sender import Sender
from noonday.drivers.kafka.thread import ClientThread, wait_for_items
from noonday.drivers.kafka.topics import Topics
from noonday.model.errors import BusUnavailable, PayloadTooLarge
from noonday.model.ids import WorkerId
from noonday.model.message import Dispatch, LogBatch, LogEntry, Oversized
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.kafka")
T = TypeVar("T", bound=Dispatch | LogEntry)


class KafkaBus(Bus):
    """Bus on Kafka for one event loop. `close` ends all its threads."""

    def __init__(
        self, options: KafkaOptions, keyring: Keyring, clock: Clock, on_refused: Callable[[str], None] = ignore
    ) -> None:
        """`on_refused` is called with the topic of each refused message, in the thread that reads the message."""
        self._options = options
        self._clock = clock
        self._names = Names(options.prefix)
        self._codec = Codec(Signer(keyring), options.pack_bytes, on_refused)
        self._topics = Topics(options, self._names)
        self._meter = CreditMeter(options, self._names, self._topics, clock)
        self._log = Log(options, self._names, self._codec, self._topics, clock)
        self._sender: Sender | None = None
        self._workers: dict[WorkerId, _JoinedWorker] = {}
        self._rotations: dict[tuple[str, int], Iterator[int]] = {}

    @property
    def refused(self) -> int:
        """Number of messages that were dropped because none of our keys signed them, or because they were unreadable."""
        return self._codec.refused

    async def start(self) -> None:
        """Start to measure the pools. Without this call, the first call of `credit` starts it.

        Raises BadSettings if a topic accepts less than our largest message. An unavailable broker cannot be checked: then a
        dispatch or report that is too large fails alone when it is sent.
        """
        with contextlib.suppress(BusUnavailable):
            await self._topics.refuse_small_messages()
        self._meter.start_once()
        await self._working_sender()

    async def close(self) -> None:
        """Leave all groups and end all threads. Messages that are not acknowledged yet may or may not arrive."""
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
        packed = [message for (pool, lane), some in lanes.items() for message in self._pack(pool, lane, some)]
        for (pool, _), some in lanes.items():
            self._meter.publishing(pool, len(some))
        try:
            return await self._deliver(packed, lambda dispatch: self._pack(dispatch.pool, dispatch.lane, [dispatch]))
        finally:
            for (pool, _), some in lanes.items():
                self._meter.published(pool, len(some))

    async def take(self, worker: WorkerId, room: Mapping[str, int], wait_sec: float) -> list[Dispatch]:
        joined = self._workers.get(worker)
        if joined is None:
            await self._clock.sleep(wait_sec)
            return []
        joined.add_takers(room, 1)
        try:
            return await wait_for_items(lambda: joined.take(room), joined.arrived, self._clock, wait_sec)
        finally:
            joined.add_takers(room, -1)

    async def mark_processed(self, worker: WorkerId, dispatches: Sequence[Dispatch]) -> None:
        joined = self._workers.get(worker)
        if joined is not None:
            joined.ack(dispatches)

    async def credit(self) -> Mapping[str, int]:
        self._meter.start_once()
        return self._meter.credit()

    async def join(self, worker: WorkerId, pools: Mapping[str, int]) -> int:
        await self.leave(worker)
        for pool in pools:
            await self._topics.ensure_pool(pool)
        partition = await self._log.choose_partition()
        joined = self._workers[worker] = _JoinedWorker()
        for pool, concurrency in pools.items():
            joined.open(
                pool,
                Member(
                    self._options,
                    self._names,
                    self._codec,
                    self._clock,
                    worker=worker,
                    pool=pool,
                    concurrency=concurrency,
                    on_arrival=joined.arrived.set,
                ),
            )
        self._meter.discover_soon()
        await self._working_sender()
        return partition

    async def leave(self, worker: WorkerId) -> None:
        joined = self._workers.pop(worker, None)
        if joined is not None:
            await self._stop(*joined.members)

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        await self._topics.ensure_log()
        log = self._names.log
        packed = self._codec.pack_entries(log, partition, entries)
        return await self._deliver(packed, lambda entry: self._codec.pack_entries(log, partition, [entry]))

    async def read(self, partition: int, offset: int, limit: int, wait_sec: float) -> LogBatch:
        return await self._log.read(partition, offset, limit, wait_sec)

    async def offset_since(self, partition: int, since_ms: int) -> int | None:
        return await self._log.offset_since(partition, since_ms)

    async def keep_dead_letter(self, entry: LogEntry, why: str) -> None:
        await self._topics.ensure_dead_letters()
        letter = {"why": why, "atMs": self._clock.now_ms(), "entry": entry}
        await self._send([self._codec.sign_value(self._names.dead_letters, msgspec.json.encode(letter))])

    async def partitions(self) -> int:
        return await self._topics.log_partitions()

    async def generation(self, partition: int) -> str:
        return await self._log.generation(partition)

    def _pack(self, pool: str, lane: int, dispatches: Sequence[Dispatch]) -> list[PackedMessage[Dispatch]]:
        topic = self._names.topics_of(pool)[lane]
        partitions = self._topics.partitions_of(topic)
        rotation = self._rotations.get((topic, partitions))
        if rotation is None:
            # A random start, so that schedulers do not all begin with the same partition.
            rotation = islice(cycle(range(partitions)), random.randrange(partitions), None)
            self._rotations[topic, partitions] = rotation
        return self._codec.pack_dispatches(topic, dispatches, rotation, partitions)

    async def _deliver(
        self, packed: Sequence[PackedMessage[T]], pack_alone: Callable[[T], Sequence[PackedMessage[T]]]
    ) -> Sequence[Oversized[T]]:
        """Send messages. If the broker refuses one for its size, send every entry again in a message of its own, so that only
        entries that are too large by themselves are left. Returns those."""
        limit = self._options.pack_bytes
        fitting = [each for each in packed if len(each.message.value) <= limit]
        oversized = [_oversized(each, limit) for each in packed if len(each.message.value) > limit]
        try:
            await self._send([each.message for each in fitting])
        except PayloadTooLarge:
            # The brokers accept less than kafka.message_bytes says. Readers drop the duplicates of what arrived.
            if len(fitting) == 1 and len(fitting[0].values) == 1:
                return [*oversized, _oversized(fitting[0], limit)]
            for each in fitting:
                for value in each.values:
                    oversized += await self._deliver(pack_alone(value), pack_alone)
        return oversized

    async def _send(self, messages: Sequence[KafkaMessage]) -> None:
        """Send messages. Raises PayloadTooLarge if the broker refuses one for its size; the others may have arrived."""
        if not messages:
            return
        sender = await self._working_sender()
        try:
            await sender.send(messages)
        except BusUnavailable:
            self._topics.forget(message.topic for message in messages)
            raise

    async def _working_sender(self) -> Sender:
        """Return a sender that works. A new one needs half a second before it can send, so callers start it early."""
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
                log.error("kafka client did not stop", error=outcome.detail)
            elif outcome is not None:
                raise outcome


class _JoinedWorker:
    """A worker of this bus: one group member for each of its pools."""

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

    def add_takers(self, room: Mapping[str, int], takers: int) -> None:
        """Add to the number of calls that wait for dispatches of each pool with room."""
        for pool, count in room.items():
            if count > 0 and pool in self._members:
                self._members[pool].takers += takers

    def ack(self, dispatches: Sequence[Dispatch]) -> None:
        by_pool: dict[str, list[Dispatch]] = {}
        for dispatch in dispatches:
            by_pool.setdefault(dispatch.pool, []).append(dispatch)
        for pool, some in by_pool.items():
            member = self._members.get(pool)
            if member is not None:
                member.ack(some)


def _oversized(packed: PackedMessage[T], limit: int) -> Oversized[T]:
    return Oversized(packed.values[0], len(packed.message.value), limit)


def _by_lane(dispatches: Sequence[Dispatch]) -> dict[tuple[str, int], list[Dispatch]]:
    lanes: dict[tuple[str, int], list[Dispatch]] = {}
    for dispatch in dispatches:
        lane = lanes.get((dispatch.pool, dispatch.lane))
        if lane is None:
            lane = lanes[dispatch.pool, dispatch.lane] = []
        lane.append(dispatch)
    return lanes
