"""Sends messages and waits until the broker has acknowledged them."""

import asyncio
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from noonday.drivers.kafka.codec import KafkaMessage
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.kafka.thread import ClientThread
from noonday.drivers.kafka.topics import unavailable
from noonday.model.errors import BusUnavailable, PayloadTooLarge

_POLL_SEC = 0.1
_GRACE_SEC = 2.0
"""Seconds that we wait longer than the client, which should give up first."""


class Sender(ClientThread):
    """One idempotent producer. Batches that are acknowledged together wake the loop once."""

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__("noonday-kafka-sender")
        self._options = options
        self._producer = Producer(options.producer())
        self.broken = False
        """True if the client can never send again and has to be replaced."""
        self._finished: list[_SendBatch] = []
        """Used by this object's own thread only."""

    async def send(self, messages: Sequence[KafkaMessage]) -> None:
        """Return when all messages are acknowledged. Raises BusUnavailable if one was not; it may arrive nevertheless."""
        batch = _SendBatch(len(messages), self._finished)
        try:
            for topic, partition, value, key, headers in messages:
                self._producer.produce(
                    topic, value, key, partition=partition, on_delivery=batch.on_delivery, headers=headers
                )
        except KafkaException as error:
            raise self._error_of(error.args[0]) from error
        except BufferError as error:
            raise BusUnavailable("kafka: the send queue is full; retry") from error
        try:
            async with asyncio.timeout(self._options.send_within_sec + _GRACE_SEC):
                await batch.finished.wait()
        except TimeoutError as error:
            raise BusUnavailable(f"kafka: no acknowledgement from {self._options.servers}") from error
        if batch.error is not None:
            raise self._error_of(batch.error)

    def _error_of(self, error: KafkaError) -> BusUnavailable | PayloadTooLarge:
        self.broken |= error.fatal()
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return PayloadTooLarge("kafka: larger than the broker accepts in one message")
        return unavailable(error)

    def _open(self) -> None:
        """Do nothing: the producer exists from the start, because any thread may produce."""

    def _run_once(self) -> None:
        self._poll(_POLL_SEC)

    def _close(self) -> None:
        self._producer.purge()
        self._poll(0)
        self._producer.close()

    def _poll(self, wait_sec: float) -> None:
        self._producer.poll(wait_sec)
        if self._finished:
            finished, self._finished[:] = list(self._finished), []
            self._call_on_loop(_set_finished, finished)


class _SendBatch:
    """The messages of one `send` call."""

    __slots__ = ("_finished", "_pending", "error", "finished")

    def __init__(self, messages: int, finished: "list[_SendBatch]") -> None:
        self._pending = messages
        self._finished = finished
        self.error: KafkaError | None = None
        self.finished = asyncio.Event()

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = error
        self._pending -= 1
        if not self._pending:
            self._finished.append(self)


def _set_finished(batches: Sequence[_SendBatch]) -> None:
    for batch in batches:
        batch.finished.set()
