"""Sends messages, and knows when the broker has them."""

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
"""The client gives up first; should it not, we do."""


class Sender(ClientThread):
    """One idempotent producer. What it acknowledges is told to the loop once for all that was acknowledged together."""

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__("noonday-kafka-sender")
        self._options = options
        self._producer = Producer(options.producer())
        self.broken = False
        """The client can never send again: another one has to."""
        self._finished: list[_SendBatch] = []
        """Touched by our own thread only."""

    async def send(self, messages: Sequence[KafkaMessage]) -> None:
        """Returns when all are acknowledged. Raises BusUnavailable if one was not; it may arrive nevertheless."""
        parcel = _SendBatch(len(messages), self._finished)
        try:
            for topic, partition, value, key, headers in messages:
                self._producer.produce(
                    topic, value, key, partition=partition, on_delivery=parcel.one_arrived, headers=headers
                )
        except KafkaException as error:
            raise self._refusal(error.args[0]) from error
        except BufferError as error:
            raise BusUnavailable("kafka: too much waits to be sent") from error
        try:
            async with asyncio.timeout(self._options.send_within_sec + _GRACE_SEC):
                await parcel.arrived.wait()
        except TimeoutError as error:
            raise BusUnavailable(f"kafka: no word from {self._options.servers}") from error
        if parcel.error is not None:
            raise self._refusal(parcel.error)

    def _refusal(self, error: KafkaError) -> BusUnavailable | PayloadTooLarge:
        self.broken |= error.fatal()
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return PayloadTooLarge("kafka: larger than the broker takes in one message")
        return unavailable(error)

    def _open(self) -> None:
        """The producer is there from the beginning: any thread may give it something to send."""

    def _turn(self) -> None:
        self._listen(_POLL_SEC)

    def _close(self) -> None:
        self._producer.purge()
        self._listen(0)
        self._producer.close()

    def _listen(self, wait_sec: float) -> None:
        self._producer.poll(wait_sec)
        if self._finished:
            finished, self._finished[:] = list(self._finished), []
            self._tell(_announce, finished)


class _SendBatch:
    """The messages of one call."""

    __slots__ = ("_finished", "_left", "arrived", "error")

    def __init__(self, messages: int, finished: "list[_SendBatch]") -> None:
        self._left = messages
        self._finished = finished
        self.error: KafkaError | None = None
        self.arrived = asyncio.Event()

    def one_arrived(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = error
        self._left -= 1
        if not self._left:
            self._finished.append(self)


def _announce(parcels: Sequence[_SendBatch]) -> None:
    for parcel in parcels:
        parcel.arrived.set()
