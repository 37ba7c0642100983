"""Settings of a cluster and of its servers."""

from typing import Annotated, Literal

from msgspec import Meta

from noonday.model.limits import MESSAGE_BYTES
from noonday.wiring.settings.section import Section


class PostgresSettings(Section, frozen=True, kw_only=True):
    """PostgreSQL, the store of a cluster."""

    url: Annotated[
        Annotated[str, Meta(pattern="^postgres(ql)?://")] | None,
        Meta(
            description="URL of the database (PostgreSQL 15 or later), such as `postgresql://user:password@host/noonday`.",
            extra={"secret": True},
        ),
    ] = None
    schema: Annotated[str, Meta(pattern="^[a-z_][a-z0-9_]{0,62}$", description="Schema that contains all tables.")] = (
        "noonday"
    )
    sessions: Annotated[int, Meta(ge=2, le=1_000, description="Maximum number of sessions of one process.")] = 10
    ca_file: Annotated[
        str | None,
        Meta(description="File with the CA certificate of the server. Setting it requires TLS for every session."),
    ] = None


class RedisSettings(Section, frozen=True, kw_only=True):
    """Redis, which keeps the claims, revocations and hints of a cluster. It may lose all data at any time."""

    url: Annotated[
        Annotated[str, Meta(pattern="^rediss?://")] | None,
        Meta(
            description="URL of the server (Redis 7 or later), such as `redis://:password@host:6379/0`; `rediss://` uses TLS.",
            extra={"secret": True},
        ),
    ] = None
    ca_file: Annotated[str | None, Meta(description="File with the CA certificate of the server, for `rediss://`.")] = (
        None
    )


class KafkaSettings(Section, frozen=True, kw_only=True):
    """Kafka, which carries dispatches to workers and reports to recorders."""

    servers: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Brokers (Kafka 3.9 or later), as `host:port,host:port`."),
    ] = None
    user: Annotated[str | None, Meta(description="User name for the brokers (SASL).")] = None
    password: Annotated[str | None, Meta(description="Password for the brokers (SASL).", extra={"secret": True})] = None
    mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="SASL mechanism.")] = (
        "SCRAM-SHA-512"
    )
    tls: Annotated[bool, Meta(description="Use TLS for connections to the brokers.")] = False
    ca_file: Annotated[
        str | None, Meta(description="File with the CA certificate of the brokers. Implies kafka.tls.")
    ] = None
    message_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=134_217_728,
            description="Maximum message that the brokers accept (their `message.max.bytes`), in bytes. "
            "A payload and a progress of the maximum sizes must fit into one message.",
        ),
    ] = MESSAGE_BYTES
    pool_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Partitions of each topic of a new pool, and so the maximum number of workers that share the pool.",
        ),
    ] = 8
    log_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="Partitions of a new events topic, and so the maximum number of recorders that share it.",
        ),
    ] = 16
    replication: Annotated[
        int | None,
        Meta(description="Replication factor of new topics. Without it, the number of brokers, at most 3."),
    ] = None


class EtcdSettings(Section, frozen=True, kw_only=True):
    """etcd, which keeps the leases of a cluster."""

    urls: Annotated[
        Annotated[str, Meta(pattern="^https?://")] | None,
        Meta(description="Endpoints (etcd 3.4 or later), as `http://host:2379,http://...`."),
    ] = None
    user: Annotated[str | None, Meta(description="User name for etcd.")] = None
    password: Annotated[str | None, Meta(description="Password for etcd.", extra={"secret": True})] = None
    ca_file: Annotated[str | None, Meta(description="File with the CA certificate of the servers.")] = None
    cert_file: Annotated[
        str | None, Meta(description="File with the client certificate, if the servers require one.")
    ] = None
    key_file: Annotated[str | None, Meta(description="File with the private key of the client certificate.")] = None


class ClusterSettings(Section, frozen=True, kw_only=True):
    """Settings that all processes of a cluster share."""

    name: Annotated[
        str,
        Meta(
            pattern="^[a-z0-9-]{1,40}$",
            description="Name of the cluster. Clusters on the same servers must have different names.",
        ),
    ] = "noonday"
    leases: Annotated[
        Literal["etcd", "redis"], Meta(description="Server that keeps the leases of partitions and members.")
    ] = "etcd"
    lease_ttl_sec: Annotated[
        int, Meta(ge=1, le=60, description="Seconds until the partitions of a dead process pass to others.")
    ] = 3
    hot_index: Annotated[
        Literal["memory", "redis"],
        Meta(description="Location of the hot index: `memory` of the scheduler that owns the partition, or `redis`."),
    ] = "memory"
    max_clock_offset_sec: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Maximum clock offset from the database, in seconds. A process with a larger offset does not start.",
        ),
    ] = 60
