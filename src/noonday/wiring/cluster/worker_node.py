"""A worker process of a cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import structlog
import uuid_utils

from noonday.drivers.postgres.transactional import PostgresCompletions
from noonday.drivers.redis.breakers import RedisBreakers
from noonday.drivers.redis.signals import RedisSignals
from noonday.drivers.redis.throttles import RedisThrottles
from noonday.model.errors import Unavailable
from noonday.model.handler import Handler
from noonday.model.ids import InstanceId
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import StopDeadline, should_log
from noonday.wiring.built_in_handlers import BuiltInHandlers
from noonday.wiring.cluster.clock import ClockRole
from noonday.wiring.cluster.servers import Servers, open_servers
from noonday.wiring.drivers import WorkerDrivers
from noonday.wiring.roles.role import ProcessContext
from noonday.wiring.roles.role_group import RoleGroup
from noonday.wiring.roles.worker import WorkerRole
from noonday.wiring.settings import Settings
from noonday.wiring.stopping import stop_deadline
from noonday.wiring.telemetry import tracing_of

log = structlog.get_logger("noonday.cluster")
FROZEN_SEC = 20.0
"""Stall of a worker's control loop after which the worker gives up its runs and takes a new identity, in seconds."""
FINISH_SEC = 0.1
"""Interval at which a retiring worker checks whether its runs have ended, in seconds."""
START_AGAIN_SEC = 0.5
"""Pause between two attempts of a starting worker to reach a server, in seconds."""


class WorkerNode:
    """A process that runs handlers. It uses Kafka and Redis, and has no access to the store."""

    def __init__(
        self,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        concurrency: Mapping[str, int],
        servers: Servers,
        opened: AsyncExitStack,
        handlers_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.clock = servers.clock
        self._opened = opened
        instance = InstanceId(f"i-{uuid_utils.uuid7().hex[:20]}")
        context = ProcessContext(instance, settings, self.metrics, tracing_of(settings))
        self._built_in = BuiltInHandlers(settings, servers.keyring, servers.clock)
        self._clock_role = ClockRole(servers.clock, servers.reference.read_ms, context)
        worker = WorkerRole(
            {**self._built_in.of_pools(concurrency.keys()), **handlers},
            concurrency,
            worker_drivers(settings, servers),
            context,
            handlers_loop=handlers_loop,
            frozen_after_sec=FROZEN_SEC,
        )
        self.worker = worker.worker
        self._roles = RoleGroup(context, [self._clock_role, worker])

    @classmethod
    async def open(
        cls,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        concurrency: Mapping[str, int],
        handlers_loop: asyncio.AbstractEventLoop,
    ) -> "WorkerNode":
        async with AsyncExitStack() as opening:
            servers = await opening.enter_async_context(open_servers(settings))
            node = cls(settings, handlers, concurrency, servers, opening.pop_all(), handlers_loop)
        try:
            # A worker without the reference time would start executions early or late.
            await _when_available("waiting for reference time", node._clock_role.measure)
            node._clock_role.refuse_wrong()
            await _when_available("waiting for kafka", node.worker.open)
        except BaseException:
            await node._opened.aclose()
            raise
        node._roles.run()
        return node

    @property
    def failed(self) -> "asyncio.Future[None]":
        return self._roles.failed

    def live(self) -> bool:
        return self._roles.is_live()

    def ready(self) -> list[str]:
        return self._roles.reasons_not_ready()

    async def hand_over(self, deadline: StopDeadline | None = None) -> None:
        """Take no further executions. Running ones may finish."""
        await self._roles.hand_over(deadline)

    async def drain(self, deadline: StopDeadline) -> None:
        """Do nothing: runs end after the server for health and metrics."""

    async def finish(self, stop_requested: asyncio.Event) -> None:
        """Wait after `hand_over` until all runs have ended, or a stop is requested. The timeouts of the runs limit the wait."""
        await self.worker.retire()
        while self.worker.has_runs and not stop_requested.is_set() and not self.failed.done():
            await asyncio.sleep(FINISH_SEC)

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Finish or interrupt runs after `hand_over`, and stop everything else, by the deadline if one is given."""
        deadline = deadline or stop_deadline(self.settings, self.clock)
        await self._roles.stop(deadline)
        await deadline.step("webhooks", self._built_in.close())
        await deadline.step("servers", self._opened.aclose())


def worker_drivers(settings: Settings, servers: Servers) -> WorkerDrivers:
    redis, name = servers.redis, settings.cluster.name
    return WorkerDrivers(
        clock=servers.clock,
        keyring=servers.keyring,
        bus=servers.bus,
        signals=RedisSignals(redis, name),
        breakers=RedisBreakers(redis, name),
        throttles=RedisThrottles(redis, name),
        completions=PostgresCompletions(settings.postgres.schema),
    )


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
