"""What a Kafka message of ours looks like: several dispatches or entries in one, signed for where it is."""

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
"""More in one message would not be cheaper, and a message is what workers share work by."""

_NAMED = 100
"""So many messages that are refused are named in the log one by one; after that, only now and then one."""
_encode = msgspec.msgpack.Encoder().encode
_decode_pack = msgspec.msgpack.Decoder(list[Dispatch]).decode
_decode_entries = msgspec.msgpack.Decoder(list[LogEntry]).decode


class KafkaMessage(NamedTuple):
    topic: str
    partition: int
    value: bytes
    key: str | None
    headers: Headers


class Packed(NamedTuple, Generic[T]):
    """A message and the values in it."""

    values: Sequence[T]
    message: KafkaMessage


class Codec:
    """Writes messages and opens messages. Counts the messages that it did not believe."""

    def __init__(self, signer: Signer, pack_bytes: int) -> None:
        """`pack_bytes`: the largest value of a message. Only a single entry that is larger by itself exceeds it."""
        self._signer = signer
        self._pack_bytes = pack_bytes
        self._lock = threading.Lock()
        self.refused = 0
        self.on_refused: Callable[[str], None] = lambda topic: None
        """Called in any thread, with the topic."""

    def packs(
        self, topic: str, dispatches: Sequence[Dispatch], partitions: Iterator[int], share: int
    ) -> list[Packed[Dispatch]]:
        """In packs that are small enough to be shared by `share` partitions, which take turns."""
        size = max(1, min(LARGEST_PACK, len(dispatches) // (2 * share)))
        packs: list[Packed[Dispatch]] = []
        for at in range(0, len(dispatches), size):
            for pack, value in _encoded(dispatches[at : at + size], self._pack_bytes):
                headers: Headers = [(COUNT, b"%d" % len(pack))]
                if len(pack) == 1 and pack[0].trace:
                    headers.append((TRACE, pack[0].trace.encode()))
                packs.append(Packed(pack, self._sign(topic, next(partitions), value, pack[0].execution_id, headers)))
        return packs

    def entries(self, topic: str, partition: int, entries: Sequence[LogEntry]) -> list[Packed[LogEntry]]:
        return [
            Packed(part, self._sign(topic, partition, value, None, []))
            for part, value in _encoded(entries, self._pack_bytes)
        ]

    def plain(self, topic: str, value: bytes) -> KafkaMessage:
        return self._sign(topic, 0, value, None, [])

    def open_pack(self, message: Message) -> list[Dispatch]:
        """What is in it: nothing, if it is not from us or cannot be read."""
        value = self._open(message)
        try:
            return _decode_pack(value) if value is not None else []
        except msgspec.DecodeError as error:
            return self._refuse(message, str(error))

    def open_entries(self, message: Message) -> list[LogEntry]:
        value = self._open(message)
        try:
            return _decode_entries(value) if value is not None else []
        except msgspec.DecodeError as error:
            return self._refuse(message, str(error))

    def _sign(self, topic: str, partition: int, value: bytes, key: str | None, headers: Headers) -> KafkaMessage:
        headers.append((SIGNATURE, self._signer.sign(_place(topic, partition), value)))
        return KafkaMessage(topic, partition, value, key, headers)

    def _open(self, message: Message) -> bytes | None:
        value = message.value()
        place = _place(message.topic() or "", message.partition() or 0)
        signature = _signature_of(message)
        if value is None or signature is None or not self._signer.verify(place, value, signature):
            self._refuse(message, "it is not signed by any of our keys")
            return None
        return value

    def _refuse(self, message: Message, why: str) -> list[T]:
        with self._lock:
            self.refused += 1
            count = self.refused
        topic = message.topic() or ""
        self.on_refused(topic)
        # Whoever can write to a topic must not be able to fill our disks.
        if count <= _NAMED or count % 1_000 == 0:
            place = {"topic": topic, "partition": message.partition(), "offset": message.offset()}
            log.error("message refused", why=why, refused=count, **place)
        return []


def _place(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def _signature_of(message: Message) -> bytes | None:
    headers = message.headers()
    found = dict(headers).get(SIGNATURE) if headers else None
    return found if isinstance(found, bytes) else None


def _encoded(values: Sequence[T], limit: int) -> Iterator[tuple[Sequence[T], bytes]]:
    """In as many parts as it takes to keep each within the limit, as far as single values are."""
    encoded = _encode(values)
    if len(encoded) <= limit or len(values) == 1:
        yield values, encoded
        return
    middle = len(values) // 2
    yield from _encoded(values[:middle], limit)
    yield from _encoded(values[middle:], limit)
