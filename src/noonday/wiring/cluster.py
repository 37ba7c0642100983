"""Cluster mode: roles in one or several processes, on PostgreSQL, Redis, Kafka and etcd."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uuid_utils

from noonday.alerts.incident_consumer import IncidentConsumer
from noonday.crypto.keyring import Keyring
from noonday.drivers.etcd.gateway import EtcdOptions
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.postgres.connection import PostgresOptions
from noonday.drivers.postgres.listener import TimelineListener
from noonday.drivers.postgres.migrations import pending
from noonday.drivers.postgres.store import PostgresStore, open_store
from noonday.drivers.postgres.transactional import PostgresCompletions
from noonday.drivers.redis.breakers import RedisBreakers
from noonday.drivers.redis.connection import Connection, connect
from noonday.drivers.redis.hinted_index import HintedHotIndex
from noonday.drivers.redis.hot_index import RedisHotIndex
from noonday.drivers.redis.leases import RedisLeases
from noonday.drivers.redis.reference import RedisReference
from noonday.drivers.redis.signals import RedisSignals
from noonday.drivers.redis.throttles import RedisThrottles
from noonday.drivers.redis.tokens import RedisTokens
from noonday.model.budget import EntryBudget
from noonday.model.errors import BadSettings, StoreUnavailable, Unavailable
from noonday.model.handler import Handler
from noonday.model.ids import InstanceId
from noonday.model.pool import NOTICES_POOL
from noonday.ports.leases import Leases
from noonday.recorder.recorder_group import RecorderGroup
from noonday.recorder.revocation_keeper import RevocationKeeper
from noonday.runtime.aside import ThreadAside
from noonday.runtime.clock import ClockKeeper, ReferenceClock
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, StopDeadline, Tasks, every, reasons_not_ready, should_log
from noonday.tasks.endpoint_disabler import ROUND_SEC
from noonday.webhooks.handler import NAME, POOL
from noonday.wiring.housekeeping import Housekeeper
from noonday.wiring.parts import (
    Drivers,
    IntakePart,
    ProcessContext,
    SchedulerPart,
    by_name,
    close_worker,
    dead_mans_switch_of,
    notice_handlers,
    recorder_of,
    stop_deadline,
    webhooks_of,
    worker_of,
)
from noonday.wiring.settings import Settings
from noonday.wiring.telemetry import tracing_of

log = structlog.get_logger("noonday.cluster")
FROZEN_SEC = 20.0
"""Stall of a worker's control loop after which the worker gives up its runs and takes a new identity, in seconds."""
CLOCK_SEC = 2.0
"""Interval of clock measurements, in seconds."""
API_STATEMENT_SEC = 5.0
"""Timeout of a statement in a process that has the API as its only role, in seconds."""
FINISH_SEC = 0.1
"""Interval at which a retiring worker checks whether its runs have ended, in seconds."""
START_AGAIN_SEC = 0.5
"""Pause between two attempts of a starting worker to reach a server, in seconds."""


class Role(StrEnum):
    """Role of a process that has access to the store."""

    API = "api"
    SCHEDULER = "scheduler"
    RECORDER = "recorder"


@dataclass(frozen=True)
class _Servers:
    """Clock, keys and connections that every process of a cluster has."""

    clock: ReferenceClock
    keyring: Keyring
    redis: Connection
    bus: KafkaBus
    reference: RedisReference


class Node:
    """A process of a cluster that has access to the store and one or more roles."""

    def __init__(
        self, settings: Settings, roles: Sequence[Role], servers: _Servers, store: PostgresStore, opened: AsyncExitStack
    ) -> None:
        self.settings = settings
        self.roles = frozenset(roles)
        self.instance = InstanceId(f"i-{uuid_utils.uuid7().hex[:20]}")
        self.metrics = Metrics(settings.metrics.named_tenants)
        self.clock = servers.clock
        self._servers = servers
        self._store = store
        self._opened = opened
        self._tasks = Tasks()
        self._leases: dict[str, Leases] = {}
        self.drivers = self._make_drivers()
        self._context = ProcessContext(self.instance, settings, self.metrics, tracing_of(settings))
        clock = ClockKeeper(self.clock, self._read_clock, self.metrics.clock_offset.set)
        self.loops = by_name(
            Loop("clock", clock, self.clock, every(CLOCK_SEC), stuck_after_sec=60),
            Loop("time", _TimePublisher(self._publish_time), self.clock, every(CLOCK_SEC), stuck_after_sec=60),
        )
        self.intake = IntakePart(self.drivers, self._context, on_placed=self._on_placed)
        self.scheduler = self._make_scheduler() if Role.SCHEDULER in self.roles else None
        self.recorders = self._make_recorders() if Role.RECORDER in self.roles else None

    @classmethod
    async def open(cls, settings: Settings, roles: Sequence[Role]) -> "Node":
        """Connect to the servers and start. Raises an error if the database lacks migrations or the clock is wrong."""
        async with AsyncExitStack() as opening:
            servers = await opening.enter_async_context(_servers(settings))
            store = await open_store(_store_options(settings, roles), settings.scheduler.lead_ms)
            opening.push_async_callback(store.close)
            if missing := await pending(store.database):
                raise StoreUnavailable(f"the database lacks {', '.join(missing)}: run `noonday migrate`")
            node = cls(settings, roles, servers, store, opening.pop_all())
        try:
            await node._begin()
        except BaseException:
            await node._opened.aclose()
            raise
        return node

    @property
    def failed(self) -> "asyncio.Future[None]":
        return self._tasks.failed

    def live(self) -> bool:
        return not self.failed.done()

    def ready(self) -> list[str]:
        """Return the reasons why this process is not ready; an empty list if it is ready."""
        if self.failed.done():
            return [f"a loop has failed: {self.failed.exception()!r}"]
        recorders = self.recorders.loops if self.recorders else []
        reasons = _wrong_clock(self.clock, self.settings) + reasons_not_ready([*self.loops.values(), *recorders])
        return reasons + (self.scheduler.dispatcher.reasons_not_ready() if self.scheduler else [])

    def metrics_text(self) -> bytes:
        return self.metrics.text()

    async def hand_over(self) -> None:
        """Stop firing, publish and seal what was fired, and release the lease."""
        if self.scheduler:
            await self._tasks.end("dispatcher", "hydrator", "sweeper")
            await self.scheduler.dispatcher.drain()
            await self._tasks.end("ownership")
            with contextlib.suppress(Unavailable):
                await self.scheduler.ownership.leave()  # otherwise the lease expires

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Stop everything else after `hand_over`, by the deadline if one is given."""
        deadline = deadline or stop_deadline(self.settings, self.clock)
        await deadline.step("loops", self._tasks.end())
        if self.recorders:
            with contextlib.suppress(Unavailable):
                await deadline.step("recorders", self.recorders.leave())
        await deadline.step("servers", self._opened.aclose())

    async def _begin(self) -> None:
        await self.loops["clock"].service.run_once(0)
        _refuse_wrong_clock(self.clock, self.settings)
        if self.scheduler:
            # Only a scheduler publishes, so only a scheduler needs the depth of the topics.
            await self._servers.bus.start()
            self.loops |= self.scheduler.loops
        self.loops |= self._role_loops()
        for loop in self.loops.values():
            self.metrics.watch_tick(loop.name, loop.age_sec)
            self._tasks.spawn(loop.run(), loop.name)

    def _role_loops(self) -> dict[str, Loop]:
        clock, loops = self.clock, []
        if self.recorders:
            incident_consumer = IncidentConsumer(
                self.drivers.executions, self.drivers.alerts, self.intake.services.jobs
            )
            revocations = RevocationKeeper(
                self.drivers.executions, self.drivers.signals, self.drivers.settings_store.pool_names, clock
            )
            loops += [
                Loop("recorders", self.recorders, clock, self.recorders.next_wait, stuck_after_sec=30),
                Loop("revocations", revocations, clock, every(0.5), stuck_after_sec=30),
                Loop("incidents", incident_consumer, clock, every(1.0), stuck_after_sec=60),
                Loop("endpoint-disabler", self.intake.endpoint_disabler, clock, every(ROUND_SEC), stuck_after_sec=300),
                Loop("notifier", self.intake.notifier, clock, every(1.0), stuck_after_sec=60),
            ]
        if self.scheduler:
            limits, retention = self.settings.limits, self.settings.retention
            housekeeper = Housekeeper(self.drivers, retention, limits, self.metrics, shows_clock=False)
            loops.append(Loop("housekeeper", housekeeper, clock, every(5.0), stuck_after_sec=120))
            switch = dead_mans_switch_of(self.drivers, self.settings)
            loops.append(Loop("dead-mans-switch", switch, clock, every(5.0), stuck_after_sec=120))
            listener = self._make_listener(self.scheduler)
            loops.append(Loop("notices", listener, clock, every(0), stuck_after_sec=60))
        return by_name(*loops)

    async def _read_clock(self) -> int:
        """Return the time of the store, the reference clock of the cluster."""
        now_ms: int = await self._store.database.value("SELECT clock_ms()")
        return now_ms

    async def _publish_time(self) -> int:
        """Write the store's time to Redis, for workers, which have no access to the store."""
        return await self._servers.reference.note(self._read_clock)

    def _make_drivers(self) -> Drivers:
        settings, servers, store = self.settings, self._servers, self._store
        budget = EntryBudget(settings.scheduler.index_entries)
        arguments = (servers.redis, servers.clock, settings.scheduler.lead_ms, settings.cluster.name)
        in_memory = settings.cluster.hot_index == "memory"
        index = HintedHotIndex(*arguments, budget) if in_memory else RedisHotIndex(*arguments)
        self._opened.push_async_callback(index.close)
        index.on_placed = self._on_placed
        return Drivers(
            clock=servers.clock,
            budget=budget,
            jobs=store.jobs,
            firing=store.firing,
            executions=store.executions,
            query_store=store.query_store,
            settings_store=store.settings_store,
            workload=store.workload,
            endpoints=store.endpoints,
            alerts=store.alerts,
            notices=store.notices,
            index=index,
            bus=servers.bus,
            signals=RedisSignals(servers.redis, settings.cluster.name),
            tokens=RedisTokens(servers.redis, settings.cluster.name),
            leases=self._make_leases("scheduler"),
            keyring=servers.keyring,
            aside=ThreadAside(),
        )

    def _on_placed(self) -> None:
        if self.scheduler:
            self.scheduler.wake()

    def _make_leases(self, group: str) -> Leases:
        leases = leases_of(self.settings, group, self._servers.redis)
        self._opened.push_async_callback(leases.close)
        return leases

    def _make_scheduler(self) -> SchedulerPart:
        return SchedulerPart(self.drivers, self._context, load=_CpuLoad())

    def _make_listener(self, scheduler: SchedulerPart) -> TimelineListener:
        listener = TimelineListener(
            self._store.database.options, self.drivers.index, lambda: scheduler.ownership.partitions
        )
        listener.on_placed = scheduler.wake
        self._opened.push_async_callback(listener.close)
        return listener

    def _make_recorders(self) -> RecorderGroup:
        def recorder(partition: int) -> Any:
            new = recorder_of(partition, self.drivers, self._context)
            if self.scheduler:
                new.on_settled = self.scheduler.on_settled
            return new

        return RecorderGroup(self.instance, self._make_leases("recorder"), self.drivers.bus, self.clock, recorder)


class _TimePublisher:
    def __init__(self, publish: Callable[[], Awaitable[int]]) -> None:
        self._publish = publish

    async def run_once(self, now_ms: int) -> int:
        await self._publish()
        return 0


class WorkerNode:
    """A process that runs handlers. It uses Kafka and Redis, and has no access to the store."""

    def __init__(
        self,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        concurrency: Mapping[str, int],
        servers: _Servers,
        opened: AsyncExitStack,
        handlers_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.clock = servers.clock
        self._servers = servers
        self._opened = opened
        self._tasks = Tasks()
        instance = InstanceId(f"i-{uuid_utils.uuid7().hex[:20]}")
        self._webhooks = webhooks_of(settings, servers.keyring, servers.clock)
        if POOL in concurrency:
            handlers = {(POOL, NAME): self._webhooks.handler(), **handlers}
        if NOTICES_POOL in concurrency:
            handlers = {**notice_handlers(settings, self._webhooks, servers.keyring), **handlers}
        self.worker = worker_of(
            handlers,
            ProcessContext(instance, settings, self.metrics, tracing_of(settings)),
            bus=servers.bus,
            signals=RedisSignals(servers.redis, settings.cluster.name),
            breakers=RedisBreakers(servers.redis, settings.cluster.name),
            throttles=RedisThrottles(servers.redis, settings.cluster.name),
            clock=servers.clock,
            keyring=servers.keyring,
            concurrency=concurrency,
            handlers_loop=handlers_loop,
            frozen_after_sec=FROZEN_SEC,
            completions=PostgresCompletions(settings.postgres.schema),
        )
        keeper = ClockKeeper(self.clock, servers.reference.read_ms, self.metrics.clock_offset.set)
        self._clock_loop = Loop("clock", keeper, self.clock, every(CLOCK_SEC), stuck_after_sec=60)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        concurrency: Mapping[str, int],
        handlers_loop: asyncio.AbstractEventLoop,
    ) -> "WorkerNode":
        async with AsyncExitStack() as opening:
            servers = await opening.enter_async_context(_servers(settings))
            node = cls(settings, handlers, concurrency, servers, opening.pop_all(), handlers_loop)
        try:
            # A worker without the reference time would start executions early or late.
            await _when_available("waiting for reference time", partial(node._clock_loop.service.run_once, 0))
            _refuse_wrong_clock(node.clock, settings)
            await _when_available("waiting for kafka", node.worker.open)
        except BaseException:
            await node._opened.aclose()
            raise
        node._tasks.spawn(node._clock_loop.run(), "clock")
        for name, coroutine in node.worker.loops().items():
            node._tasks.spawn(coroutine, name)
        return node

    @property
    def failed(self) -> "asyncio.Future[None]":
        return self._tasks.failed

    def live(self) -> bool:
        return not self.failed.done() and self.worker.live()

    def ready(self) -> list[str]:
        if self.failed.done():
            return [f"a loop has failed: {self.failed.exception()!r}"]
        wrong = _wrong_clock(self.clock, self.settings)
        return wrong + reasons_not_ready([self._clock_loop]) + self.worker.troubles()

    def metrics_text(self) -> bytes:
        return self.metrics.text()

    async def hand_over(self) -> None:
        """Take no further executions. Running ones may finish."""
        await self.worker.stop_taking()

    async def finish(self, stop_requested: asyncio.Event) -> None:
        """Wait after `hand_over` until all runs have ended, or a stop is requested. The timeouts of the runs limit the wait."""
        await self.worker.retire()
        while self.worker.has_runs and not stop_requested.is_set() and not self.failed.done():
            await asyncio.sleep(FINISH_SEC)

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Finish or interrupt runs after `hand_over`, and stop everything else, by the deadline if one is given."""
        deadline = deadline or stop_deadline(self.settings, self.clock)
        await close_worker(self.worker, self.settings, deadline)
        await deadline.step("webhooks", self._webhooks.close())
        await deadline.step("loops", self._tasks.end())
        await deadline.step("servers", self._opened.aclose())


async def _when_available(event: str, step: Callable[[], Awaitable[object]]) -> None:
    """Repeat one step of a worker's start until its server is available."""
    failures = 0
    while True:
        try:
            await step()
        except Unavailable as error:
            failures += 1
            if should_log(failures):
                log.warning(event, error=error.detail, failures=failures)
            await asyncio.sleep(START_AGAIN_SEC)
        else:
            return


def _refuse_wrong_clock(clock: ReferenceClock, settings: Settings) -> None:
    for reason in _wrong_clock(clock, settings):
        raise BadSettings(f"{reason}: synchronize it (NTP), or raise cluster.max_clock_offset_sec")


def _wrong_clock(clock: ReferenceClock, settings: Settings) -> list[str]:
    offset_sec, limit = clock.offset_ms / 1000, settings.cluster.max_clock_offset_sec
    if abs(offset_sec) <= limit:
        return []
    return [f"the clock of this machine differs from the database's by {-offset_sec:+.1f} s; the limit is {limit} s"]


class _CpuLoad:
    """CPU load of this process over the last second or longer, from 0 to 1."""

    def __init__(self) -> None:
        self._wall, self._busy = time.monotonic(), time.process_time()
        self._load = 0.0

    def __call__(self) -> float:
        wall, busy = time.monotonic(), time.process_time()
        if wall - self._wall >= 1.0:
            self._load = min(1.0, (busy - self._busy) / (wall - self._wall))
            self._wall, self._busy = wall, busy
        return self._load


@asynccontextmanager
async def _servers(settings: Settings) -> AsyncIterator[_Servers]:
    """Open the connections that every process of a cluster needs, and close them when the block ends."""
    clock, keyring = ReferenceClock(), keyring_of(settings)
    redis = redis_connection(settings)
    bus = KafkaBus(kafka_options(settings), keyring, clock)
    try:
        await redis.refuse_eviction()
        yield _Servers(clock, keyring, redis, bus, RedisReference(redis, settings.cluster.name))
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


def _store_options(settings: Settings, roles: Sequence[Role]) -> PostgresOptions:
    """Return the options, with short timeouts for the API: its clients wait, while batches of other roles may take longer."""
    options = postgres_options(settings)
    return replace(options, statement_sec=API_STATEMENT_SEC, connect_sec=3.0) if set(roles) == {Role.API} else options


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
    cluster, etcd = settings.cluster, settings.etcd
    if cluster.leases == "redis":
        return RedisLeases(redis.client, group, cluster.name, cluster.lease_ttl_sec)
    urls = _needed(etcd.urls, "etcd.urls", "NOONDAY_ETCD_URLS")
    options = EtcdOptions(
        ca_file=_path(etcd.ca_file),
        cert_file=_path(etcd.cert_file),
        key_file=_path(etcd.key_file),
        user=etcd.user or "",
        password=etcd.password or "",
    )
    return EtcdLeases([url.strip() for url in urls.split(",")], group, cluster.name, cluster.lease_ttl_sec, options)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _needed(value: str | None, key: str, variable: str) -> str:
    if value is None:
        raise BadSettings(f"a cluster needs {key}: set {variable}, or [{key.split('.')[0]}] in noonday.toml")
    return value
