"""A place of our own on servers that others may use as well: a schema, and a prefix of topics, groups and keys."""

import asyncio
import os
import secrets
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench import BenchFailed
from bench.fleet import CALLER, WORKER, Member, by_role, check_members
from bench.machine import settings_used, with_children
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import migrate
from noonday.wiring.cluster.servers import kafka_options, postgres_options, redis_connection
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings

PATIENCE_SEC = 600.0
"""For statements that look at everything."""
KAFKA_ANSWERS_WITHIN_SEC = 20.0
DAYS_AHEAD = 2
SETTLED_WITHIN_SEC = 60
LOOK_EVERY_SEC = 0.1
_WORKERS = "SELECT count(*) FROM workers WHERE state = 'ALIVE' AND pid = ANY ($1)"
_EPOCHS = "SELECT epoch FROM partitions WHERE owner <> '' ORDER BY partition"
_KEYS_AT_ONCE = 1000
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 / 1048576
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema AND c.relkind = 'r'
"""


class Site:
    """What is asked of it is asked in the process that has no loop of its own."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` names the servers."""
        name = f"bench-{os.getpid()}-{secrets.token_hex(4)}"
        self.name = name
        self.secret = secrets.token_urlsafe(32)
        self.environment = {
            **environment,
            "NOONDAY_CLUSTER_NAME": name,
            "NOONDAY_POSTGRES_SCHEMA": name.replace("-", "_"),
            "NOONDAY_KEYS": f"bench:{b64encode(secrets.token_bytes(32)).decode()}",
            "NOONDAY_AUTH_SECRET": self.secret,
        }

    @cached_property
    def settings(self) -> Settings:
        return load_settings({}, self.environment, Path(os.devnull))

    def prepare(self) -> list[int]:
        """Make what is missing. Answers the epochs of the partitions as the last engine here left them."""
        return asyncio.run(self._prepare())

    def await_settled(self, epochs: list[int], members: list[Member]) -> None:
        """Every partition has an owner since these `epochs`, and every worker is known. Raises BenchFailed."""
        asyncio.run(self._await_settled(epochs, members))

    def count_jobs(self) -> int:
        return int(asyncio.run(self._ask("SELECT count(*) FROM jobs")))

    def size_mb(self) -> float:
        return round(float(asyncio.run(self._ask(_SIZE))), 1)

    def circumstances(self) -> dict[str, Any]:
        return asyncio.run(self._circumstances())

    def clear(self) -> None:
        """Leave nothing behind. Only when none of our processes is there any more."""
        asyncio.run(self._clear())

    async def _prepare(self) -> list[int]:
        async with watching(self.settings) as database:
            await migrate(database)
            await database.value("SELECT make_partitions(clock_ms(), $1)", DAYS_AHEAD)
            return [row[0] for row in await database.fetch("SELECT epoch FROM partitions ORDER BY partition")]

    async def _await_settled(self, epochs: list[int], members: list[Member]) -> None:
        roles, deadline = by_role(members), time.monotonic() + SETTLED_WITHIN_SEC
        workers = [*roles.get(WORKER, ()), *roles.get(CALLER, ())]
        async with watching(self.settings) as database:
            while not await _is_settled(database, epochs, workers):
                check_members(members)
                if time.monotonic() > deadline:
                    raise BenchFailed(
                        f"after {SETTLED_WITHIN_SEC} s some partition has no owner, or a worker is not known"
                    )
                await asyncio.sleep(LOOK_EVERY_SEC)

    async def _ask(self, query: str) -> Any:
        async with watching(self.settings) as database:
            return await database.value(query)

    async def _circumstances(self) -> dict[str, Any]:
        async with watching(self.settings) as database:
            return await circumstances(self.settings, database)

    async def _clear(self) -> None:
        async with watching(self.settings) as database, database.session() as session:
            await session.execute(f'DROP SCHEMA IF EXISTS "{self.settings.postgres.schema}" CASCADE')
        await _clear_redis(self.settings)
        await asyncio.to_thread(_clear_kafka, self.settings)


@asynccontextmanager
async def watching(settings: Settings) -> AsyncIterator[PostgresDatabase]:
    """The database as somebody else reads it."""
    options = postgres_options(settings)
    patient = replace(options, sessions=2, statement_sec=PATIENCE_SEC, lock_sec=30.0, name="noonday-bench")
    database = await PostgresDatabase.open(patient)
    try:
        yield database
    finally:
        await database.close()


async def _is_settled(database: PostgresDatabase, before: list[int], workers: list[int]) -> bool:
    # A worker has a parent process, which is the one that was started: its own is a child of that.
    if await database.value(_WORKERS, list(with_children(workers))) < len(workers):
        return False
    epochs = [row[0] for row in await database.fetch(_EPOCHS)]
    return len(epochs) == len(before) and all(now > was for now, was in zip(epochs, before, strict=True))


async def circumstances(settings: Settings, database: PostgresDatabase) -> dict[str, Any]:
    redis = redis_connection(settings)
    try:
        said = await redis.client.info("server")
        kept = await redis.client.config_get("append*")
    finally:
        await redis.close()
    return {
        **settings_used(settings),
        "hot_index": settings.cluster.hot_index,
        "leases": settings.cluster.leases,
        "pool_partitions": settings.kafka.pool_partitions,
        "postgres": str(await database.value("SHOW server_version")).split(" ")[0],
        "synchronous_commit": await database.value("SHOW synchronous_commit"),
        "fsync": await database.value("SHOW fsync"),
        "redis": said["redis_version"],
        "redis_appendfsync": kept["appendfsync"] if kept["appendonly"] == "yes" else "no file",
    }


async def _clear_redis(settings: Settings) -> None:
    redis = redis_connection(settings)
    try:
        keys = [key async for key in redis.client.scan_iter(f"{settings.cluster.name}:*", count=_KEYS_AT_ONCE)]
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            await redis.client.unlink(*keys[first : first + _KEYS_AT_ONCE])
    finally:
        await redis.close()


def _clear_kafka(settings: Settings) -> None:
    admin, ours = AdminClient(kafka_options(settings).client()), f"{settings.cluster.name}."
    within = KAFKA_ANSWERS_WITHIN_SEC
    try:
        groups = [group.group_id for group in admin.list_consumer_groups().result(within).valid]
        topics = list(admin.list_topics(timeout=within).topics)
        going: dict[str, Any] = {}
        for found, delete in ((groups, admin.delete_consumer_groups), (topics, admin.delete_topics)):
            if mine := [name for name in found if name.startswith(ours)]:
                going |= delete(mine)
        for each in going.values():
            each.result(within)
    except KafkaException as error:
        raise BenchFailed(f"topics that begin with {ours} are left in Kafka: {error}") from error
