"""Reads the dispatches that were published to a pool, for as long as its topics keep them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from noonday.crypto.keyring import Keyring
from noonday.crypto.signature import Signer
from noonday.drivers.kafka.codec import Codec
from noonday.drivers.kafka.names import Names
from noonday.drivers.kafka.offsets import PartitionKey
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.topics import unavailable
from noonday.model.errors import BusUnavailable
from noonday.model.message import Dispatch

T = TypeVar("T")
_MESSAGES = 500


async def read_back(
    options: KafkaOptions, keyring: Keyring, pool: str, from_ms: int, to_ms: int
) -> AsyncIterator[list[Dispatch]]:
    """Yield the dispatches that were published to a pool from `from_ms` until before `to_ms`, and before this call.

    Dispatches of one lane and partition come in the order of publication; there is no order over all of them. A dispatch that
    was published twice comes twice. Raises BusUnavailable.
    """
    codec = Codec(Signer(keyring), options.pack_bytes)
    # One thread for all calls, because a consumer handles one call at a time.
    with ThreadPoolExecutor(1, "noonday-kafka-replay") as thread:
        history = _TopicHistory(options, Names(options.prefix).topics_of(pool), from_ms, to_ms)
        try:
            await _in(thread, history.open)
            while history.unread:
                messages = await _in(thread, history.read)
                packs = [codec.unpack_dispatches(message) for message in messages]
                if found := [dispatch for pack in packs for dispatch in pack]:
                    yield found
        finally:
            await _in(thread, history.close)


async def count(options: KafkaOptions, keyring: Keyring, pool: str, from_ms: int, to_ms: int) -> int:
    """Return the number of dispatches that `read_back` would yield now."""
    return sum([len(found) async for found in read_back(options, keyring, pool, from_ms, to_ms)])


class _TopicHistory:
    """Messages of some topics between two instants, read by a client without a group."""

    def __init__(self, options: KafkaOptions, topics: tuple[str, ...], from_ms: int, to_ms: int) -> None:
        self._timeout_sec = options.answer_within_sec
        self._topics = topics
        self._from_ms, self._to_ms = from_ms, to_ms
        self._consumer = Consumer(options.reader() | {"auto.offset.reset": "earliest", "enable.partition.eof": True})
        self.unread: dict[PartitionKey, int] = {}
        """End offset of each partition that is not read to its end."""

    def open(self) -> None:
        found = self._consumer.list_topics(timeout=self._timeout_sec).topics
        keys = [(topic, each) for topic in self._topics if topic in found for each in found[topic].partitions]
        begin, end = self._offsets_at(keys, self._from_ms), self._offsets_at(keys, self._to_ms)
        for key in keys:
            stop = end[key] if end[key] >= 0 else self._end_of(key)
            if 0 <= begin[key] < stop:
                self.unread[key] = stop
        self._consumer.assign([TopicPartition(*key, begin[key]) for key in self.unread])

    def read(self) -> list[Message]:
        """Return some of the unread messages."""
        first = self._consumer.poll(self._timeout_sec)
        if first is None:
            raise BusUnavailable(f"kafka: no message within {self._timeout_sec:g} s, although there are more")
        return [each for each in (first, *self._consumer.consume(_MESSAGES, 0)) if self._is_in_range(each)]

    def close(self) -> None:
        self._consumer.close()

    def _is_in_range(self, message: Message) -> bool:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise unavailable(error)
        key, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        stop = self.unread.get(key, 0)
        if offset >= stop - 1:
            self.unread.pop(key, None)
        # Timestamps are by the publishers' clocks, so they need not be in order.
        return error is None and offset < stop and self._from_ms <= message.timestamp()[1] < self._to_ms

    def _offsets_at(self, keys: Sequence[PartitionKey], ms: int) -> dict[PartitionKey, int]:
        """Return for each partition the offset of the first message at that instant or later, or -1 if there is none."""
        queries = [TopicPartition(*key, ms) for key in keys]
        found = self._consumer.offsets_for_times(queries, timeout=self._timeout_sec) if queries else []
        for each in found:
            if each.error is not None:
                raise unavailable(each.error)
        return {(each.topic, each.partition): each.offset for each in found}

    def _end_of(self, key: PartitionKey) -> int:
        marks = self._consumer.get_watermark_offsets(TopicPartition(*key), timeout=self._timeout_sec)
        if marks is None:
            raise BusUnavailable(f"kafka: no answer for the end of partition {key[1]} of {key[0]}")
        return marks[1]


async def _in(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    except KafkaException as error:
        raise unavailable(error.args[0]) from error
