"""Reads one partition of the log.

An entry's offset is that of its message times a million, plus its index in the message. So every entry has its own offset, and
reading can continue in the middle of a message. Offsets grow by one or more from entry to entry: an offset plus n never lies
behind the n-th entry from there, only before it, so that at worst some entries are read twice.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from noonday.drivers.kafka.codec import Codec
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread, real_clock
from noonday.model.message import LogBatch, LogEntry

log = structlog.get_logger("noonday.kafka")
SCALE = 1_000_000
IDLE_SEC = 60.0
"""A reader that was not used for this long, in seconds, ends: another process reads the partition by now."""
SILENT_SEC = 20.0
"""Ticks come every few seconds. A client that receives nothing for this long may have lost its broker for good: replace it."""
_POLL_SEC = 0.1
_MOST, _MOST_BYTES = 20_000, 16_777_216
"""Number of entries to read ahead, unless a call asks for more at once, and the most bytes of their messages."""
_CHUNK_BYTES = 2_097_152
_MEAN_OVER = 8


class ReadAhead:
    """Messages that were read and may be asked for, in order. Does no I/O."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, Sequence[LogEntry], int]] = deque()
        self.first = -1
        """The offset from which on all messages that came are kept."""
        self.next = -1
        """The offset of the message that comes next."""
        self.count = 0
        self.bytes = 0
        self._skipped: tuple[int, int] | None = None

    def resolve(self, offset: int) -> int:
        """Return the scaled offset to read from, for a requested one. They differ if the requested message is gone."""
        if self._skipped is not None and offset // SCALE == self._skipped[0]:
            return self._skipped[1] * SCALE
        self._skipped = None
        return offset

    def seek(self, offset: int) -> bool:
        """Drop the messages before an offset. Returns False if the offset is outside: then the next message must be that one."""
        if not self.first <= offset <= self.next:
            self.reset(offset)
            return False
        while self._messages and self._messages[0][0] < offset:
            _, entries, size = self._messages.popleft()
            self.count -= len(entries)
            self.bytes -= size
        self.first = offset
        return True

    def reset(self, offset: int) -> None:
        self._messages.clear()
        self.first = self.next = offset
        self.count = self.bytes = 0

    def skip_to(self, offset: int) -> None:
        """Continue at another offset, because the expected message does not exist."""
        self._skipped = (self.next, offset)
        self.reset(offset)

    def add(self, offset: int, entries: Sequence[LogEntry], size: int) -> None:
        """Add a message. A message that was added before is ignored; one without entries is not kept."""
        if offset < self.next:
            return
        if entries:
            self._messages.append((offset, entries, size))
            self.count += len(entries)
            self.bytes += size
        self.next = offset + 1

    def batch_from(self, offset: int, limit: int) -> LogBatch:
        """Return up to `limit` entries from a scaled offset on."""
        found: list[LogEntry] = []
        begin = end = offset
        for at, entries, _ in self._messages:
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
    """Reads one partition ahead in its thread. The loop asks for entries from an offset on."""

    def __init__(self, options: KafkaOptions, codec: Codec, topic: str, partition: int) -> None:
        super().__init__(f"noonday-kafka-log-{partition}")
        self._options = options
        self._codec = codec
        self._topic = topic
        self._partition = partition
        self.arrived = asyncio.Event()
        self.generation: str | None = None
        """Generation of the log that this reader was opened for."""
        self._lock = threading.Lock()
        self._read_ahead = ReadAhead()
        self._must_seek = False
        """True if the client is at another offset than the next one."""
        self._most = _MOST
        self._mean_bytes = float(options.message_bytes)
        self._drained = threading.Event()
        self._used_at = real_clock.monotonic()

    # On the loop

    def find(self, offset: int, limit: int) -> list[LogBatch]:
        """Return one batch of entries from an offset on, or nothing if none came yet."""
        with self._lock:
            self._used_at = real_clock.monotonic()
            self._most = max(_MOST, 2 * limit)
            offset = self._read_ahead.resolve(offset)
            if not self._read_ahead.seek(offset // SCALE):
                self._must_seek = True
            self._drained.set()
            batch = self._read_ahead.batch_from(offset, limit)
        return [batch] if batch.entries else []

    # In the thread

    def _open(self) -> None:
        self._consumer = Consumer(self._options.reader())
        self._received_at = real_clock.monotonic()

    def _run_once(self) -> None:
        if real_clock.monotonic() - self._used_at > IDLE_SEC:
            self._stopping.set()
            return
        if real_clock.monotonic() - self._received_at > SILENT_SEC:
            self._consumer.close()
            self._open()
            self._must_seek = True
        with self._lock:
            ahead = self._read_ahead
            full = ahead.next < 0 or ahead.count >= self._most or ahead.bytes >= _MOST_BYTES
            if full:
                self._drained.clear()
            start = self._read_ahead.next if self._must_seek else None
            self._must_seek = False
        if start is not None:
            self._seek(start)
        elif full:
            self._received_at = real_clock.monotonic()
            self._drained.wait(_POLL_SEC)
        else:
            self._fetch()

    def _close(self) -> None:
        self._consumer.close()

    def _seek(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def _fetch(self) -> None:
        first = self._consumer.poll(_POLL_SEC)
        if first is None:
            return
        self._received_at = real_clock.monotonic()
        messages = [first, *self._consumer.consume(max(1, _CHUNK_BYTES // round(self._mean_bytes)), 0)]
        unpacked = [self._unpack(each) for each in messages if each.error() is None]
        with self._lock:
            if self._must_seek:
                return
            for offset, entries, size in unpacked:
                self._read_ahead.add(offset, entries, size)
        if unpacked:
            self._call_on_loop(self.arrived.set)
        for each in messages:
            if each.error() is not None:
                self._on_error(each)

    def _unpack(self, message: Message) -> tuple[int, list[LogEntry], int]:
        size = len(message)
        self._mean_bytes += (max(1_000, size) - self._mean_bytes) / _MEAN_OVER
        return message.offset() or 0, self._codec.unpack_entries(message), size

    def _on_error(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
            self._skip_gap()
        else:
            self._warn("kafka log read failed", error)
            self._stopping.wait(_POLL_SEC)

    def _skip_gap(self) -> None:
        """Continue at the first message, because the offset does not exist: the message was deleted, or the log is a new one."""
        found = self._find_bounds()
        with self._lock:
            # If the bounds are unknown, seek to the same offset: the client reports again that it does not exist.
            if found is not None and not self._must_seek:
                begin, end = found
                log.error(
                    "kafka log gap", partition=self._partition, expected=self._read_ahead.next, begin=begin, end=end
                )
                self._read_ahead.skip_to(begin)
            self._must_seek = True

    def _find_bounds(self) -> tuple[int, int] | None:
        partition = TopicPartition(self._topic, self._partition)
        try:
            return self._consumer.get_watermark_offsets(partition, timeout=self._options.answer_within_sec)
        except KafkaException as error:
            self._warn("kafka log bounds unknown", error.args[0])
            self._stopping.wait(_POLL_SEC)
            return None
