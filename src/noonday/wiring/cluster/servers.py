"""Connections to the servers of a cluster, and their options."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from noonday.crypto.keyring import Keyring
from noonday.drivers.etcd.gateway import EtcdOptions
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.postgres.connection import PostgresOptions
from noonday.drivers.redis.connection import Connection, connect
from noonday.drivers.redis.leases import RedisLeases
from noonday.drivers.redis.reference import RedisReference
from noonday.model.errors import BadSettings
from noonday.runtime.clock import ReferenceClock
from noonday.wiring.settings import Settings


@dataclass(frozen=True)
class Servers:
    """Clock, keys and connections that every process of a cluster has."""

    clock: ReferenceClock
    keyring: Keyring
    redis: Connection
    bus: KafkaBus
    reference: RedisReference


@asynccontextmanager
async def open_servers(settings: Settings) -> AsyncIterator[Servers]:
    """Open the connections that every process of a cluster needs, and close them when the block ends."""
    clock, keyring = ReferenceClock(), keyring_of(settings)
    redis = redis_connection(settings)
    bus = KafkaBus(kafka_options(settings), keyring, clock)
    try:
        await redis.refuse_eviction()
        yield Servers(clock, keyring, redis, bus, RedisReference(redis, settings.cluster.name))
    finally:
        await bus.close()
        await redis.close()


def keyring_of(settings: Settings) -> Keyring:
    if not settings.encryption.keys:
        raise BadSettings(
            "a cluster needs encryption.keys (NOONDAY_KEYS), the same in every process: create a key with `noonday keys new`"
        )
    return Keyring.from_env_value(settings.encryption.keys)


def postgres_options(settings: Settings) -> PostgresOptions:
    postgres = settings.postgres
    url = _needed(postgres.url, "postgres.url", "NOONDAY_POSTGRES_URL")
    return PostgresOptions(url, schema=postgres.schema, sessions=postgres.sessions, ca_file=postgres.ca_file)


def redis_connection(settings: Settings) -> Connection:
    return connect(_needed(settings.redis.url, "redis.url", "NOONDAY_REDIS_URL"), ca_file=settings.redis.ca_file)


def kafka_options(settings: Settings) -> KafkaOptions:
    kafka = settings.kafka
    return KafkaOptions(
        _needed(kafka.servers, "kafka.servers", "NOONDAY_KAFKA_SERVERS"),
        prefix=settings.cluster.name,
        username=kafka.user,
        password=kafka.password,
        mechanism=kafka.mechanism,
        tls=kafka.tls,
        ca_file=kafka.ca_file,
        pool_partitions=kafka.pool_partitions,
        log_partitions=kafka.log_partitions,
        message_bytes=kafka.message_bytes,
        replication=kafka.replication,
    )


def leases_of(settings: Settings, group: str, redis: Connection) -> EtcdLeases | RedisLeases:
    cluster = settings.cluster
    if cluster.leases == "redis":
        return RedisLeases(redis.client, group, cluster.name, cluster.lease_ttl_sec)
    urls = _needed(settings.etcd.urls, "etcd.urls", "NOONDAY_ETCD_URLS")
    endpoints = [url.strip() for url in urls.split(",")]
    return EtcdLeases(endpoints, group, cluster.name, cluster.lease_ttl_sec, etcd_options(settings))


def etcd_options(settings: Settings) -> EtcdOptions:
    etcd = settings.etcd
    return EtcdOptions(
        ca_file=_path(etcd.ca_file),
        cert_file=_path(etcd.cert_file),
        key_file=_path(etcd.key_file),
        user=etcd.user or "",
        password=etcd.password or "",
    )


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _needed(value: str | None, key: str, variable: str) -> str:
    if value is None:
        raise BadSettings(f"a cluster needs {key}: set {variable}, or [{key.split('.')[0]}] in noonday.toml")
    return value
