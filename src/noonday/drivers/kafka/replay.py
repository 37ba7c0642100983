"""Reads back what was published to a pool, for as long as the topics keep it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from noonday.crypto.keyring import Keyring
from noonday.crypto.signature import Signer
from noonday.drivers.kafka.codec import Codec
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import TopicPlace
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.topics import unavailable
from noonday.model.errors import BusUnavailable
from noonday.model.message import Dispatch

T = TypeVar("T")
_MESSAGES = 500


async def read_back(
    options: KafkaOptions, keyring: Keyring, pool: str, from_ms: int, to_ms: int
) -> AsyncIterator[list[Dispatch]]:
    """What was published to a pool from one instant on until before another, as far as it was there when this began.

    Lane by lane and partition by partition in the order of publication, not in that order over all. What was published twice
    comes twice. Raises BusUnavailable.
    """
    codec = Codec(Signer(keyring), options.pack_bytes)
    # One thread for all calls: a consumer answers one at a time.
    with ThreadPoolExecutor(1, "noonday-kafka-replay") as thread:
        past = _Past(options, Names(options.prefix).topics_of(pool), from_ms, to_ms)
        try:
            await _in(thread, past.open)
            while past.left:
                messages = await _in(thread, past.read)
                packs = [codec.open_pack(message) for message in messages]
                if found := [dispatch for pack in packs for dispatch in pack]:
                    yield found
        finally:
            await _in(thread, past.close)


async def count(options: KafkaOptions, keyring: Keyring, pool: str, from_ms: int, to_ms: int) -> int:
    """How many dispatches `read_back` would bring now."""
    return sum([len(found) async for found in read_back(options, keyring, pool, from_ms, to_ms)])


class _Past:
    """The messages of some topics between two instants, read by a client without a group."""

    def __init__(self, options: KafkaOptions, topics: tuple[str, ...], from_ms: int, to_ms: int) -> None:
        self._within = options.answer_within_sec
        self._topics = topics
        self._from_ms, self._to_ms = from_ms, to_ms
        self._consumer = Consumer(options.reader() | {"auto.offset.reset": "earliest", "enable.partition.eof": True})
        self.left: dict[TopicPlace, int] = {}
        """For each partition that is not yet read: where it ends."""

    def open(self) -> None:
        found = self._consumer.list_topics(timeout=self._within).topics
        places = [(topic, each) for topic in self._topics if topic in found for each in found[topic].partitions]
        begin, end = self._at(places, self._from_ms), self._at(places, self._to_ms)
        for place in places:
            stop = end[place] if end[place] >= 0 else self._end_of(place)
            if 0 <= begin[place] < stop:
                self.left[place] = stop
        self._consumer.assign([TopicPartition(*place, begin[place]) for place in self.left])

    def read(self) -> list[Message]:
        """Some of those that are left."""
        first = self._consumer.poll(self._within)
        if first is None:
            raise BusUnavailable(f"kafka: nothing came for {self._within:g} s, although there is more")
        return [each for each in (first, *self._consumer.consume(_MESSAGES, 0)) if self._is_wanted(each)]

    def close(self) -> None:
        self._consumer.close()

    def _is_wanted(self, message: Message) -> bool:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise unavailable(error)
        place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        stop = self.left.get(place, 0)
        if offset >= stop - 1:
            self.left.pop(place, None)
        # Times are those of whoever published: they need not be in order.
        return error is None and offset < stop and self._from_ms <= message.timestamp()[1] < self._to_ms

    def _at(self, places: Sequence[TopicPlace], ms: int) -> dict[TopicPlace, int]:
        """For each partition the first offset of that time or later; -1 if there is none."""
        asked = [TopicPartition(*place, ms) for place in places]
        found = self._consumer.offsets_for_times(asked, timeout=self._within) if asked else []
        for each in found:
            if each.error is not None:
                raise unavailable(each.error)
        return {(each.topic, each.partition): each.offset for each in found}

    def _end_of(self, place: TopicPlace) -> int:
        marks = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=self._within)
        if marks is None:
            raise BusUnavailable(f"kafka: cannot tell where {place[0]} ends")
        return marks[1]


async def _in(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    except KafkaException as error:
        raise unavailable(error.args[0]) from error
