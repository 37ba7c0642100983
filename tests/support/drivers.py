"""Every driver of every port, one line each. The whole conformance suite runs against a new driver after its line is added."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from noonday.crypto.keyring import Keyring
from noonday.drivers.etcd.gateway import EtcdOptions
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.drivers.memory.tokens import MemoryTokens
from noonday.drivers.postgres.store import PostgresStore
from noonday.drivers.redis.breakers import RedisBreakers
from noonday.drivers.redis.connection import Connection, connect
from noonday.drivers.redis.hinted_index import HintedHotIndex
from noonday.drivers.redis.hot_index import RedisHotIndex
from noonday.drivers.redis.leases import RedisLeases
from noonday.drivers.redis.signals import RedisSignals
from noonday.drivers.redis.throttles import RedisThrottles
from noonday.drivers.redis.tokens import RedisTokens
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.ports.alerts import Alerts
from noonday.ports.breakers import Breakers
from noonday.ports.bus import Bus
from noonday.ports.child_jobs import ChildJobs
from noonday.ports.endpoints import Endpoints
from noonday.ports.execution_search import ExecutionSearch
from noonday.ports.executions import Executions
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.leases import Leases
from noonday.ports.notices import Notices
from noonday.ports.notifications import NotificationEvents, ProviderAccounts, ScheduledNotifications, SendKeys, Users
from noonday.ports.operations import Operations
from noonday.ports.queries import QueryStore
from noonday.ports.selection import Selection
from noonday.ports.settings import SettingsStore
from noonday.ports.signals import Signals
from noonday.ports.throttles import Throttles
from noonday.ports.tokens import Tokens
from noonday.ports.workload import Workload
from tests.support.clock import ManualClock
from tests.support.kafka import options_for_a_test
from tests.support.postgres import postgres_store
from tests.support.servers_up import redis_url

T = TypeVar("T", covariant=True)
LEAD_MS = 300
LONG_TTL_SEC, PATIENCE_SEC = 30, 10.0
"""The TTL of leases. It is long, so that a busy machine fails no test that is not about time."""
ETCD_URLS = os.environ.get("NOONDAY_ETCD_URLS", "http://127.0.0.1:22379").split(",")


class Capability(Enum):
    """Differences between the drivers of one port."""

    CLAIMS_LAPSE = "a claim that nothing was told of lapses"
    IN_ITS_PROCESS = "what it has is in the owner's process alone"
    IN_ORDER = "what is published first is taken first"
    KEEPS_ITS_LOG = "what was read from the log can be read again"
    OUTLIVES_ITS_OWNER = "what one owner forgets, the next one finds"
    SEVERAL_LOOPS = "it can be used from several loops at once"
    ONE_INSTANCE = "only one instance can be a member"
    SEVERAL_INSTANCES = "several instances can be members"


class Store(Protocol):
    """The ports of one store, which see each other's writes."""

    @property
    def jobs(self) -> Jobs: ...
    @property
    def child_jobs(self) -> ChildJobs: ...
    @property
    def firing(self) -> Firing: ...
    @property
    def executions(self) -> Executions: ...
    @property
    def query_store(self) -> QueryStore: ...
    @property
    def execution_search(self) -> ExecutionSearch: ...
    @property
    def settings_store(self) -> SettingsStore: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def endpoints(self) -> Endpoints: ...
    @property
    def alerts(self) -> Alerts: ...
    @property
    def notices(self) -> Notices: ...
    @property
    def users(self) -> Users: ...
    @property
    def provider_accounts(self) -> ProviderAccounts: ...


class NotificationStore(Protocol):
    """The ports of one store of notifications, which see each other's writes."""

    @property
    def scheduled_notifications(self) -> ScheduledNotifications: ...
    @property
    def notification_events(self) -> NotificationEvents: ...
    def operations(self) -> Operations: ...
    @property
    def selection(self) -> Selection: ...


async def execute(store: Store, statement: str) -> None:
    """Run SQL that every dialect understands, as another version of the program might."""
    if isinstance(store, SqliteStore):
        await store.database.write(lambda conn: conn.execute(statement))
    else:
        await _postgres(store).database.value(statement)


async def read_value(store: Store, query: str) -> Any:
    """Return the one value of a query that every dialect understands."""
    if isinstance(store, SqliteStore):
        return await store.database.read(lambda conn: conn.execute(query).fetchone()[0])
    return await _postgres(store).database.value(query)


def _postgres(store: Store) -> PostgresStore:
    assert isinstance(store, PostgresStore)
    return store


@dataclass(frozen=True)
class Driver(Generic[T]):
    name: str
    open: Callable[[Path, ManualClock], AbstractAsyncContextManager[T]]
    """Called with an empty folder and a clock."""
    capabilities: frozenset[Capability] = frozenset()


def sqlite(place: Callable[[Path], str]) -> Callable[[Path, ManualClock], AbstractAsyncContextManager[SqliteStore]]:
    @asynccontextmanager
    async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
        store = open_store(place(folder), FileOptions(synchronous="OFF"), LEAD_MS)
        yield store
        await store.close()

    return opened


@asynccontextmanager
async def sqlite_send_keys(folder: Path, clock: ManualClock) -> AsyncIterator[SendKeys]:
    async with sqlite(lambda folder: MEMORY)(folder, clock) as store:
        yield store.send_keys


def plain(make: Callable[[Path, ManualClock], T]) -> Callable[[Path, ManualClock], AbstractAsyncContextManager[T]]:
    """Wrap a driver that needs no opening and no closing."""

    @asynccontextmanager
    async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[T]:
        yield make(folder, clock)

    return opened


@asynccontextmanager
async def etcd_leases(folder: Path, clock: ManualClock) -> AsyncIterator[Callable[[], Leases]]:
    prefix = f"test-{uuid4().hex}"
    async with AsyncExitStack() as opened:

        def one_more() -> Leases:
            leases = EtcdLeases(ETCD_URLS, "scheduler", prefix, LONG_TTL_SEC, EtcdOptions(timeout_sec=PATIENCE_SEC))
            opened.push_async_callback(leases.close)
            return leases

        yield one_more


@asynccontextmanager
async def redis_leases(folder: Path, clock: ManualClock) -> AsyncIterator[Callable[[], Leases]]:
    async with redis_connection() as (connection, prefix), AsyncExitStack() as opened:

        def one_more() -> Leases:
            leases = RedisLeases(connection.client, "scheduler", prefix, LONG_TTL_SEC, PATIENCE_SEC)
            opened.push_async_callback(leases.close)
            return leases

        yield one_more


@asynccontextmanager
async def redis_connection() -> AsyncIterator[tuple[Connection, str]]:
    """Open a connection with a prefix of its own. All keys under the prefix are deleted afterwards."""
    prefix = f"test-{uuid4().hex}"
    connection = connect(redis_url())
    try:
        yield connection, prefix
        async for key in connection.client.scan_iter(f"{prefix}*", count=10_000):
            await connection.client.unlink(key)
    finally:
        await connection.close()


@asynccontextmanager
async def redis_index(folder: Path, clock: ManualClock) -> AsyncIterator[HotIndex]:
    async with redis_connection() as (connection, prefix):
        index = RedisHotIndex(connection, clock, LEAD_MS, prefix)
        yield index
        await index.close()


@asynccontextmanager
async def hinted_index(folder: Path, clock: ManualClock) -> AsyncIterator[HotIndex]:
    async with redis_connection() as (connection, prefix):
        index = HintedHotIndex(connection, clock, LEAD_MS, prefix)
        yield index
        await index.close()


def redis_signals(lapse_ms: int) -> Callable[[Path, ManualClock], AbstractAsyncContextManager[Signals]]:
    @asynccontextmanager
    async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[Signals]:
        async with redis_connection() as (connection, prefix):
            yield RedisSignals(connection, prefix, lapse_ms)

    return opened


@asynccontextmanager
async def redis_tokens(folder: Path, clock: ManualClock) -> AsyncIterator[Tokens]:
    async with redis_connection() as (connection, prefix):
        yield RedisTokens(connection, prefix)


@asynccontextmanager
async def redis_breakers(folder: Path, clock: ManualClock) -> AsyncIterator[Breakers]:
    async with redis_connection() as (connection, prefix):
        yield RedisBreakers(connection, prefix)


@asynccontextmanager
async def redis_throttles(folder: Path, clock: ManualClock) -> AsyncIterator[Throttles]:
    async with redis_connection() as (connection, prefix):
        yield RedisThrottles(connection, prefix)


@asynccontextmanager
async def kafka_bus(folder: Path, clock: ManualClock) -> AsyncIterator[Bus]:
    async with options_for_a_test() as options:
        bus = KafkaBus(options, Keyring.generate(), clock)
        await bus.start()
        try:
            yield bus
        finally:
            await bus.close()


STORES: list[Driver[Store]] = [
    Driver("sqlite", sqlite(lambda folder: MEMORY)),
    Driver("postgres", lambda folder, clock: postgres_store(LEAD_MS)),
]
THREADED_STORE: Driver[Store] = Driver("sqlite-threaded", sqlite(lambda folder: str(folder / "noonday.db")))
"""A file with a writer thread and reader threads."""
NOTIFICATION_STORES: list[Driver[NotificationStore]] = [
    Driver("sqlite", sqlite(lambda folder: MEMORY)),
    Driver("sqlite-threaded", sqlite(lambda folder: str(folder / "noonday.db"))),
]
SEND_KEYS: list[Driver[SendKeys]] = [
    Driver("sqlite", sqlite_send_keys),
]
HOT_INDEXES: list[Driver[HotIndex]] = [
    Driver("memory", plain(lambda folder, clock: MemoryHotIndex(LEAD_MS)), frozenset({Capability.IN_ITS_PROCESS})),
    Driver("redis", redis_index, frozenset({Capability.OUTLIVES_ITS_OWNER})),
    Driver("redis-hints", hinted_index, frozenset({Capability.IN_ITS_PROCESS})),
]
BUSES: list[Driver[Bus]] = [
    Driver(
        "memory",
        plain(lambda folder, clock: MemoryBus(clock)),
        frozenset({Capability.IN_ORDER, Capability.SEVERAL_LOOPS}),
    ),
    Driver("kafka", kafka_bus, frozenset({Capability.KEEPS_ITS_LOG})),
]
SIGNALS: list[Driver[Signals]] = [
    Driver("memory", plain(lambda folder, clock: MemorySignals()), frozenset({Capability.SEVERAL_LOOPS})),
    Driver("redis", redis_signals(lapse_ms=30_000), frozenset({Capability.CLAIMS_LAPSE})),
]
SIGNALS_THAT_LAPSE_SOON: list[Driver[Signals]] = [
    Driver("redis", redis_signals(lapse_ms=50)),
]
TOKENS: list[Driver[Tokens]] = [
    Driver("memory", plain(lambda folder, clock: MemoryTokens())),
    Driver("redis", redis_tokens),
]
BREAKERS: list[Driver[Breakers]] = [
    Driver("memory", plain(lambda folder, clock: MemoryBreakers())),
    Driver("redis", redis_breakers),
]
THROTTLES: list[Driver[Throttles]] = [
    Driver("memory", plain(lambda folder, clock: MemoryThrottles())),
    Driver("redis", redis_throttles),
]
LEASES: list[Driver[Callable[[], Leases]]] = [
    Driver(
        "local",
        plain(lambda folder, clock: lambda: LocalLeases(folder / "lock", clock)),
        frozenset({Capability.ONE_INSTANCE}),
    ),
    Driver("etcd", etcd_leases, frozenset({Capability.SEVERAL_INSTANCES})),
    Driver("redis", redis_leases, frozenset({Capability.SEVERAL_INSTANCES})),
]
"""Drivers of leases open several: each call makes the leases of one more instance."""
