"""How a broker is reached, and how much is asked of it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from noonday.model.errors import BadSettings
from noonday.model.limits import MESSAGE_BYTES, Sizes

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True)
class KafkaOptions:
    """The same for every process of an installation, but for names and passwords."""

    servers: str
    """`host:port,host:port`; one that answers is enough to find the others."""
    prefix: str = "noonday"
    """Of every topic and group. Two installations on one broker differ in it."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: Mechanism = "SCRAM-SHA-512"
    """How the password is shown, if there is a user name."""
    tls: bool = False
    ca_file: str | None = None
    """Who signed the brokers' certificates; without it, whom the system trusts. Implies TLS."""
    pool_partitions: int = 8
    """Of each lane of a pool that is new: no more workers of a pool than this share its work."""
    log_partitions: int = 16
    """Of a log that is new: no more recorders than this share it."""
    message_bytes: int = MESSAGE_BYTES
    """Largest message that the brokers accept. Topics that are new are made with it."""
    replication: int | None = None
    """Of topics that are new. None: as many as there are brokers, three at most."""
    send_within_sec: float = 30.0
    """After so long without an acknowledgement a message is given up; it may arrive nevertheless."""
    answer_within_sec: float = 5.0
    """How long any question to the broker may take."""
    lost_after_sec: float = 6.0
    """A worker that the broker has not heard of for so long loses its partitions to others."""
    full_after_sec: float = 5.0
    """A worker that had no room for so long gives its partitions to others."""

    def __post_init__(self) -> None:
        if self.username is not None and self.password is None:
            raise BadSettings("kafka: there is a user name, but no password")

    @property
    def protocol(self) -> str:
        encrypted = self.tls or self.ca_file is not None
        return ("SASL_" if self.username is not None else "") + ("SSL" if encrypted else "PLAINTEXT")

    @property
    def pack_bytes(self) -> int:
        """Largest value of a message."""
        return Sizes(message_bytes=self.message_bytes).pack_bytes

    @property
    def end_within_sec(self) -> float:
        """How long a client may take to let go of a broker that does not answer."""
        return 2 * self.answer_within_sec + 2.0

    def client(self) -> dict[str, Any]:
        """What every client of this broker is told."""
        told: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol,
            "socket.timeout.ms": _ms(2 * self.answer_within_sec),
            "socket.connection.setup.timeout.ms": max(1_000, _ms(self.answer_within_sec)),
            # A broker that comes back is found within a second.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "topic.metadata.refresh.interval.ms": 30_000,
            # The client would write to standard error, in its own way; what matters reaches us as errors.
            "log_level": 0,
        }
        if self.username is not None:
            told |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        if self.ca_file is not None:
            told["ssl.ca.location"] = self.ca_file
        return told

    def producer(self) -> dict[str, Any]:
        return self.client() | {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "compression.type": "lz4",
            "message.max.bytes": self.message_bytes,
            "message.timeout.ms": _ms(self.send_within_sec),
            "request.timeout.ms": _ms(min(self.send_within_sec, 2 * self.answer_within_sec)),
        }

    def member(self, group: str) -> dict[str, Any]:
        """Of a worker that shares the topics of a pool with others.

        The classic group protocol, for how quickly partitions change hands: a quarter of a second, and after a death as
        soon as we say. With the newer one the broker decides: after 5 s and 45 s by default. By ranges, because those share
        out each topic evenly; the sticky way looks at the sum, and gives all of the busy lane to one worker.
        """
        return self._consumer() | {
            "group.id": group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": _ms(self.lost_after_sec),
            "heartbeat.interval.ms": 250,
            "max.poll.interval.ms": 300_000,
            "auto.offset.reset": "earliest",
            # Whatever lies here when partitions are lost was fetched in vain.
            "queued.max.messages.kbytes": 16_384,
            "fetch.max.bytes": 8_388_608,
            "fetch.wait.max.ms": 100,
        }

    def reader(self) -> dict[str, Any]:
        """Of somebody who reads partitions on their own, and keeps their own place."""
        return self._consumer() | {
            "group.id": f"{self.prefix}.nobody",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 8_192,
            "fetch.max.bytes": 8_388_608,
            "fetch.wait.max.ms": 500,
        }

    def _consumer(self) -> dict[str, Any]:
        return self.client() | {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.error.backoff.ms": 100,
            # How long a partition whose messages we have not yet taken is left alone.
            "fetch.queue.backoff.ms": 10,
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
