"""Encodes Kafka messages: several dispatches or log entries in one, signed for a topic and partition."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
import structlog
from confluent_kafka import Message

from noonday.crypto.signature import Signer
from noonday.model.message import Dispatch, LogEntry

log = structlog.get_logger("noonday.kafka")
T = TypeVar("T", bound=Dispatch | LogEntry)
Headers = list[tuple[str, str | bytes | None]]

COUNT, SIGNATURE, TRACE = "dispatches", "signature", "traceparent"
LARGEST_PACK = 64
"""Most dispatches in one message. More would not be cheaper, and workers share work by whole messages."""

_LOGGED_REFUSALS = 100
"""Number of refused messages that are logged one by one; after that, only every thousandth is logged."""
_encode = msgspec.msgpack.Encoder().encode
_decode_dispatches = msgspec.msgpack.Decoder(list[Dispatch]).decode
_decode_entries = msgspec.msgpack.Decoder(list[LogEntry]).decode


class KafkaMessage(NamedTuple):
    topic: str
    partition: int
    value: bytes
    key: str | None
    headers: Headers


class PackedMessage(NamedTuple, Generic[T]):
    """A message and the values in it."""

    values: Sequence[T]
    message: KafkaMessage


def ignore(topic: str) -> None:
    """Do nothing about a refused message, besides the log entry."""


class Codec:
    """Packs and signs messages, verifies and unpacks them. Counts the messages that it refused."""

    def __init__(self, signer: Signer, pack_bytes: int, on_refused: Callable[[str], None] = ignore) -> None:
        """`pack_bytes`: the largest value of a message, in bytes. Only a single entry that is larger by itself exceeds it.

        `on_refused` is called with the topic of each refused message, in any thread.
        """
        self._signer = signer
        self._pack_bytes = pack_bytes
        self._lock = threading.Lock()
        self.refused = 0
        self._on_refused = on_refused

    def pack_dispatches(
        self, topic: str, dispatches: Sequence[Dispatch], rotation: Iterator[int], partitions: int
    ) -> list[PackedMessage[Dispatch]]:
        """Pack dispatches into messages small enough that all partitions get some. `rotation` yields the partition of each."""
        size = max(1, min(LARGEST_PACK, len(dispatches) // (2 * partitions)))
        packed: list[PackedMessage[Dispatch]] = []
        for at in range(0, len(dispatches), size):
            for part, value in _encode_parts(dispatches[at : at + size], self._pack_bytes):
                headers: Headers = [(COUNT, b"%d" % len(part))]
                if len(part) == 1 and part[0].trace:
                    headers.append((TRACE, part[0].trace.encode()))
                packed.append(
                    PackedMessage(part, self._sign(topic, next(rotation), value, part[0].execution_id, headers))
                )
        return packed

    def pack_entries(self, topic: str, partition: int, entries: Sequence[LogEntry]) -> list[PackedMessage[LogEntry]]:
        return [
            PackedMessage(part, self._sign(topic, partition, value, None, []))
            for part, value in _encode_parts(entries, self._pack_bytes)
        ]

    def sign_value(self, topic: str, value: bytes) -> KafkaMessage:
        return self._sign(topic, 0, value, None, [])

    def unpack_dispatches(self, message: Message) -> list[Dispatch]:
        """Return the dispatches in a message. Returns none if the message is not signed by us or is unreadable."""
        value = self._verified_value(message)
        try:
            return _decode_dispatches(value) if value is not None else []
        except msgspec.DecodeError as error:
            return self._refuse(message, str(error))

    def unpack_entries(self, message: Message) -> list[LogEntry]:
        value = self._verified_value(message)
        try:
            return _decode_entries(value) if value is not None else []
        except msgspec.DecodeError as error:
            return self._refuse(message, str(error))

    def _sign(self, topic: str, partition: int, value: bytes, key: str | None, headers: Headers) -> KafkaMessage:
        headers.append((SIGNATURE, self._signer.sign(_signing_context(topic, partition), value)))
        return KafkaMessage(topic, partition, value, key, headers)

    def _verified_value(self, message: Message) -> bytes | None:
        value = message.value()
        context = _signing_context(message.topic() or "", message.partition() or 0)
        signature = _signature_of(message)
        if value is None or signature is None or not self._signer.verify(context, value, signature):
            self._refuse(message, "not signed by any of our keys")
            return None
        return value

    def _refuse(self, message: Message, why: str) -> list[T]:
        with self._lock:
            self.refused += 1
            count = self.refused
        topic = message.topic() or ""
        self._on_refused(topic)
        # An attacker who can write to a topic must not be able to fill our disks.
        if count <= _LOGGED_REFUSALS or count % 1_000 == 0:
            position = {"topic": topic, "partition": message.partition(), "offset": message.offset()}
            log.error("message refused", why=why, refused=count, **position)
        return []


def _signing_context(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def _signature_of(message: Message) -> bytes | None:
    headers = message.headers()
    found = dict(headers).get(SIGNATURE) if headers else None
    return found if isinstance(found, bytes) else None


def _encode_parts(values: Sequence[T], limit: int) -> Iterator[tuple[Sequence[T], bytes]]:
    """Encode values in as few halvings as keep each part within `limit` bytes. A single larger value is a part of its own."""
    encoded = _encode(values)
    if len(encoded) <= limit or len(values) == 1:
        yield values, encoded
        return
    middle = len(values) // 2
    yield from _encode_parts(values[:middle], limit)
    yield from _encode_parts(values[middle:], limit)
