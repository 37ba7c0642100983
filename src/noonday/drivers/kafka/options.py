"""Connection options, and the settings of each kind of Kafka client."""

from dataclasses import dataclass, field
from typing import Any, Literal

from noonday.model.errors import BadSettings
from noonday.model.limits import MESSAGE_BYTES, Sizes

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True)
class KafkaOptions:
    """Options of the Kafka bus. All processes of an installation have the same, except for user names and passwords."""

    servers: str
    """Brokers, as `host:port,host:port`. One that answers is enough to find the others."""
    prefix: str = "noonday"
    """Prefix of every topic and group. Two installations on one broker need different prefixes."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: Mechanism = "SCRAM-SHA-512"
    """SASL mechanism, if there is a user name."""
    tls: bool = False
    ca_file: str | None = None
    """CA certificates to verify the brokers with. Without it, those that the system trusts. Implies TLS."""
    pool_partitions: int = 8
    """Partitions of each lane of a new pool. At most this many workers share the work of a lane."""
    log_partitions: int = 16
    """Partitions of a new log. At most this many recorders share it."""
    message_bytes: int = MESSAGE_BYTES
    """Largest message that the brokers accept, in bytes. New topics are created with this limit."""
    replication: int | None = None
    """Replicas of new topics. None: as many as there are brokers, at most three."""
    send_within_sec: float = 30.0
    """Seconds until an unacknowledged message is given up. It may arrive nevertheless."""
    answer_within_sec: float = 5.0
    """Timeout of a request to the broker, in seconds."""
    lost_after_sec: float = 6.0
    """Seconds until a worker that the broker does not hear from loses its partitions to other workers."""
    full_after_sec: float = 5.0
    """Seconds until a worker without room gives its partitions to other workers."""

    def __post_init__(self) -> None:
        if self.username is not None and self.password is None:
            raise BadSettings("kafka: a user name is set, but no password: set kafka.password (NOONDAY_KAFKA_PASSWORD)")

    @property
    def protocol(self) -> str:
        encrypted = self.tls or self.ca_file is not None
        return ("SASL_" if self.username is not None else "") + ("SSL" if encrypted else "PLAINTEXT")

    @property
    def pack_bytes(self) -> int:
        """Largest value of a message, in bytes."""
        return Sizes(message_bytes=self.message_bytes).pack_bytes

    @property
    def end_within_sec(self) -> float:
        """Seconds that a client may take to close while its broker does not answer."""
        return 2 * self.answer_within_sec + 2.0

    def client(self) -> dict[str, Any]:
        """Return the settings that all clients share."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol,
            "socket.timeout.ms": _ms(2 * self.answer_within_sec),
            "socket.connection.setup.timeout.ms": max(1_000, _ms(self.answer_within_sec)),
            # Reconnect within a second after a broker comes back.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "topic.metadata.refresh.interval.ms": 30_000,
            # The client would log to standard error in its own format. Relevant problems reach us as errors.
            "log_level": 0,
        }
        if self.username is not None:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username,
                "sasl.password": self.password,
            }
        if self.ca_file is not None:
            settings["ssl.ca.location"] = self.ca_file
        return settings

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
        """Return the settings of a worker's consumer, which shares the topics of a pool with others.

        It uses the classic group protocol, because that moves partitions quickly: within a quarter of a second, and after a
        death within `lost_after_sec`. With the newer protocol the broker decides: 5 s and 45 s by default. It assigns by range,
        which spreads each topic evenly. The sticky assignor balances the sum, and gives all of a busy lane to one worker.
        """
        return self._consumer() | {
            "group.id": group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": _ms(self.lost_after_sec),
            "heartbeat.interval.ms": 250,
            "max.poll.interval.ms": 300_000,
            "auto.offset.reset": "earliest",
            # Bounds the messages that were fetched in vain when partitions are lost.
            "queued.max.messages.kbytes": 16_384,
            "fetch.max.bytes": 8_388_608,
            "fetch.wait.max.ms": 100,
        }

    def reader(self) -> dict[str, Any]:
        """Return the settings of a consumer without a group, which chooses its partitions and keeps its own offsets."""
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
            # Pause before a partition is fetched again while its queue here is full.
            "fetch.queue.backoff.ms": 10,
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
