"""A process of a cluster that has access to the store: the API, a scheduler, a recorder, or several of them."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum

import uuid_utils

from noonday.drivers.postgres.connection import PostgresOptions
from noonday.drivers.postgres.listener import TimelineListener
from noonday.drivers.postgres.migrations import pending
from noonday.drivers.postgres.store import PostgresStore, open_store
from noonday.drivers.redis.hinted_index import HintedHotIndex
from noonday.drivers.redis.hot_index import RedisHotIndex
from noonday.drivers.redis.signals import RedisSignals
from noonday.drivers.redis.tokens import RedisTokens
from noonday.model.budget import EntryBudget
from noonday.model.errors import StoreUnavailable
from noonday.model.ids import InstanceId
from noonday.ports.leases import Leases
from noonday.runtime.metrics import Metrics
from noonday.runtime.offload import ThreadOffload
from noonday.runtime.supervise import Loop, StopDeadline, every
from noonday.wiring.cluster.clock import ClockRole, time_publishing
from noonday.wiring.cluster.servers import Servers, leases_of, open_servers, postgres_options
from noonday.wiring.cluster.worker_node import FROZEN_SEC, worker_drivers
from noonday.wiring.drivers import Drivers
from noonday.wiring.intake import IntakePart
from noonday.wiring.roles.composition import compose
from noonday.wiring.roles.recorder import RecorderGroupRole, ignore
from noonday.wiring.roles.remote import RemoteRole
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.roles.role_group import RoleGroup
from noonday.wiring.roles.scheduler import SchedulerRole
from noonday.wiring.settings import Settings
from noonday.wiring.stopping import stop_deadline
from noonday.wiring.telemetry import tracing_of

API_STATEMENT_SEC = 5.0
"""Timeout of a statement in a process that has the API as its only role, in seconds."""


class Role(StrEnum):
    """Role of a process that has access to the store."""

    API = "api"
    SCHEDULER = "scheduler"
    RECORDER = "recorder"
    REMOTE = "remote"
    """Serves remote workers, over the API of the same process."""


class Node:
    """A process of a cluster that has access to the store and one or more roles."""

    def __init__(
        self, settings: Settings, roles: Sequence[Role], servers: Servers, store: PostgresStore, opened: AsyncExitStack
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.metrics.named_tenants)
        self.clock = servers.clock
        self._servers = servers
        self._store = store
        self._opened = opened
        instance = InstanceId(f"i-{uuid_utils.uuid7().hex[:20]}")
        self._context = ProcessContext(instance, settings, self.metrics, tracing_of(settings))
        self.drivers = self._make_drivers()
        self.intake = IntakePart(self.drivers, self._context)
        self.scheduler = self._make_scheduler() if Role.SCHEDULER in roles else None
        self.recorder = self._make_recorder() if Role.RECORDER in roles else None
        self.remote = self._make_remote() if Role.REMOTE in roles else None
        self._clock_role = ClockRole(self.clock, self._read_clock, self._context)
        self._roles = RoleGroup(self._context, self._compose())

    @classmethod
    async def open(cls, settings: Settings, roles: Sequence[Role]) -> "Node":
        """Connect to the servers and start. Raises an error if the database lacks migrations or the clock is wrong."""
        async with AsyncExitStack() as opening:
            servers = await opening.enter_async_context(open_servers(settings))
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
        return self._roles.failed

    def live(self) -> bool:
        return self._roles.is_live()

    def ready(self) -> list[str]:
        """Return the reasons why this process is not ready; an empty list if it is ready."""
        return self._roles.reasons_not_ready()

    async def hand_over(self, deadline: StopDeadline | None = None) -> None:
        """Stop firing, publish and seal what was fired, and release the lease."""
        await self._roles.hand_over(deadline)

    async def drain(self, deadline: StopDeadline) -> None:
        """Let remote workers end what they have started. The API must still answer."""
        if self.remote:
            await self.remote.drain(deadline)

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Stop everything else after `hand_over`, by the deadline if one is given."""
        deadline = deadline or stop_deadline(self.settings, self.clock)
        await self._roles.stop(deadline)
        await deadline.step("servers", self._opened.aclose())

    async def _begin(self) -> None:
        await self._clock_role.measure()
        self._clock_role.refuse_wrong()
        if self.scheduler:
            # Only a scheduler publishes, so only a scheduler needs the depth of the topics.
            await self._servers.bus.start()
        self._roles.run()

    def _compose(self) -> list[ProcessRole]:
        clock = [self._clock_role, time_publishing(self.clock, self._publish_time)]
        chosen = compose(
            self.drivers,
            self._context,
            self.intake,
            scheduler=self.scheduler,
            recorder=self.recorder,
            remote=self.remote,
        )
        return [*clock, *chosen, *([self._make_listening(self.scheduler)] if self.scheduler else [])]

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
        wake, in_memory = self._context.dispatcher_wake.set, settings.cluster.hot_index == "memory"
        index = HintedHotIndex(*arguments, budget, wake) if in_memory else RedisHotIndex(*arguments, wake)
        self._opened.push_async_callback(index.close)
        return Drivers(
            clock=servers.clock,
            budget=budget,
            **store.ports,
            index=index,
            bus=servers.bus,
            signals=RedisSignals(servers.redis, settings.cluster.name),
            tokens=RedisTokens(servers.redis, settings.cluster.name),
            leases=self._make_leases("scheduler"),
            keyring=servers.keyring,
            offload=ThreadOffload(),
        )

    def _make_leases(self, group: str) -> Leases:
        leases = leases_of(self.settings, group, self._servers.redis)
        self._opened.push_async_callback(leases.close)
        return leases

    def _make_scheduler(self) -> SchedulerRole:
        return SchedulerRole(self.drivers, self._context, shares_partitions=True, load=_CpuLoad())

    def _make_recorder(self) -> RecorderGroupRole:
        on_settled = self.scheduler.on_settled if self.scheduler else ignore
        admit = self.intake.services.child_job_admission.admit
        return RecorderGroupRole(self.drivers, self._context, self._make_leases("recorder"), on_settled, admit)

    def _make_remote(self) -> RemoteRole:
        drivers = worker_drivers(self.settings, self._servers)
        return RemoteRole(drivers, self._context, frozen_after_sec=FROZEN_SEC)

    def _make_listening(self, scheduler: SchedulerRole) -> ProcessRole:
        """Add entries that other processes commit to the hot index of the scheduler."""
        options, ownership = self._store.database.options, scheduler.ownership
        listener = TimelineListener(options, self.drivers.index, lambda: ownership.partitions, scheduler.wake)
        self._opened.push_async_callback(listener.close)
        return ProcessRole("timeline listener", Loop("notices", listener, self.clock, every(0), stuck_after_sec=60))


def _store_options(settings: Settings, roles: Sequence[Role]) -> PostgresOptions:
    """Return the options, with short timeouts for the API: its clients wait, while batches of other roles may take longer."""
    options = postgres_options(settings)
    return replace(options, statement_sec=API_STATEMENT_SEC, connect_sec=3.0) if set(roles) == {Role.API} else options


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
