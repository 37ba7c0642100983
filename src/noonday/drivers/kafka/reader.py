"""Reads one partition of the log.

An entry's offset is that of its message times a million, plus its index in the message. So every entry has an offset of its
own, reading can go on in the middle of a message, and offsets grow by one or more from entry to entry: whoever counts n
entries on from an offset never comes out behind the n-th, only before it, and reads some entries twice at worst.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from noonday.drivers.kafka.codec import Codec
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread, pace
from noonday.model.message import LogEntry
from noonday.ports.bus import LogBatch

log = structlog.get_logger("noonday.kafka")
SCALE = 1_000_000
IDLE_SEC = 60.0
"""A partition that nobody has read for so long is somebody else's by now."""
SILENT_SEC = 20.0
"""Ticks come every few seconds: a client that hears nothing for so long may have lost its broker for good, and is replaced."""
_POLL_SEC = 0.1
_MOST, _MOST_BYTES = 20_000, 16_777_216
"""How many entries may lie here, unless more are asked for at once; and what their messages may have in bytes."""
_CHUNK_BYTES = 2_097_152
_MEMORY = 8


class Pages:
    """Messages that were read and may be asked for again, in order. Knows nothing of brokers."""

    def __init__(self) -> None:
        self._pages: deque[tuple[int, Sequence[LogEntry], int]] = deque()
        self.first = -1
        """We have what came from this offset on."""
        self.next = -1
        """The offset of the message that comes next."""
        self.count = 0
        self.bytes = 0
        self._moved: tuple[int, int] | None = None

    def where(self, offset: int) -> int:
        """The scaled offset to read from, for one that was asked for."""
        if self._moved is not None and offset // SCALE == self._moved[0]:
            return self._moved[1] * SCALE
        self._moved = None
        return offset

    def aim(self, offset: int) -> bool:
        """From here on, please. Whether that is where we are: if not, the next message has to be this one."""
        if not self.first <= offset <= self.next:
            self.start_at(offset)
            return False
        while self._pages and self._pages[0][0] < offset:
            _, entries, size = self._pages.popleft()
            self.count -= len(entries)
            self.bytes -= size
        self.first = offset
        return True

    def start_at(self, offset: int) -> None:
        self._pages.clear()
        self.first = self.next = offset
        self.count = self.bytes = 0

    def move(self, offset: int) -> None:
        """What was asked for is not there: read from here instead."""
        self._moved = (self.next, offset)
        self.start_at(offset)

    def add(self, offset: int, entries: Sequence[LogEntry], size: int) -> None:
        """A message came. One without entries is not kept, one that we have had already is not either."""
        if offset < self.next:
            return
        if entries:
            self._pages.append((offset, entries, size))
            self.count += len(entries)
            self.bytes += size
        self.next = offset + 1

    def cut(self, offset: int, limit: int) -> LogBatch:
        """Up to `limit` entries from a scaled offset on."""
        found: list[LogEntry] = []
        begin = end = offset
        for at, entries, _ in self._pages:
            skip = max(0, offset - at * SCALE)
            some = entries[skip : skip + limit - len(found)]
            if not some:
                continue
            if not found:
                begin = at * SCALE + skip
            found += some
            end = (at + 1) * SCALE if skip + len(some) == len(entries) else at * SCALE + skip + len(some)
            if len(found) >= limit:
                break
        return LogBatch(begin, end, tuple(found))


class LogReader(ClientThread):
    """Its thread reads ahead, a little; the loop asks for entries from an offset on."""

    def __init__(self, options: KafkaOptions, codec: Codec, topic: str, partition: int) -> None:
        super().__init__(f"noonday-kafka-log-{partition}")
        self._options = options
        self._codec = codec
        self._topic = topic
        self._partition = partition
        self.arrived = asyncio.Event()
        self.generation: str | None = None
        """Of the log it was opened for."""
        self._lock = threading.Lock()
        self._pages = Pages()
        self._astray = False
        """The client is not where it should be."""
        self._most = _MOST
        self._mean_bytes = float(options.message_bytes)
        self._drained = threading.Event()
        self._asked_at = pace.monotonic()

    # On the loop

    def find(self, offset: int, limit: int) -> list[LogBatch]:
        """One batch, if there is anything from that offset on."""
        with self._lock:
            self._asked_at = pace.monotonic()
            self._most = max(_MOST, 2 * limit)
            offset = self._pages.where(offset)
            if not self._pages.aim(offset // SCALE):
                self._astray = True
            self._drained.set()
            batch = self._pages.cut(offset, limit)
        return [batch] if batch.entries else []

    # In the thread

    def _open(self) -> None:
        self._consumer = Consumer(self._options.reader())
        self._heard_at = pace.monotonic()

    def _turn(self) -> None:
        if pace.monotonic() - self._asked_at > IDLE_SEC:
            self._stopping.set()
            return
        if pace.monotonic() - self._heard_at > SILENT_SEC:
            self._consumer.close()
            self._open()
            self._astray = True
        with self._lock:
            pages = self._pages
            full = pages.next < 0 or pages.count >= self._most or pages.bytes >= _MOST_BYTES
            if full:
                self._drained.clear()
            start = self._pages.next if self._astray else None
            self._astray = False
        if start is not None:
            self._go_to(start)
        elif full:
            self._heard_at = pace.monotonic()
            self._drained.wait(_POLL_SEC)
        else:
            self._fetch()

    def _close(self) -> None:
        self._consumer.close()

    def _go_to(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def _fetch(self) -> None:
        first = self._consumer.poll(_POLL_SEC)
        if first is None:
            return
        self._heard_at = pace.monotonic()
        messages = [first, *self._consumer.consume(max(1, _CHUNK_BYTES // round(self._mean_bytes)), 0)]
        opened = [self._open_message(each) for each in messages if each.error() is None]
        with self._lock:
            if self._astray:
                return
            for offset, entries, size in opened:
                self._pages.add(offset, entries, size)
        if opened:
            self._tell(self.arrived.set)
        for each in messages:
            if each.error() is not None:
                self._on_error(each)

    def _open_message(self, message: Message) -> tuple[int, list[LogEntry], int]:
        size = len(message)
        self._mean_bytes += (max(1_000, size) - self._mean_bytes) / _MEMORY
        return message.offset() or 0, self._codec.open_entries(message), size

    def _on_error(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
            self._start_over()
        else:
            self._complain("cannot read the log", error)
            self._stopping.wait(_POLL_SEC)

    def _start_over(self) -> None:
        """The offset is not there: what it named is too old, and gone, or the log is another one."""
        found = self._find_bounds()
        with self._lock:
            # Should they not be known: try once more, and hear again that the offset is not there.
            if found is not None and not self._astray:
                begin, end = found
                log.error("the log has a gap", partition=self._partition, wanted=self._pages.next, begin=begin, end=end)
                self._pages.move(begin)
            self._astray = True

    def _find_bounds(self) -> tuple[int, int] | None:
        place = TopicPartition(self._topic, self._partition)
        try:
            return self._consumer.get_watermark_offsets(place, timeout=self._options.answer_within_sec)
        except KafkaException as error:
            self._complain("cannot tell where the log begins", error.args[0])
            self._stopping.wait(_POLL_SEC)
            return None
