"""The role that serves remote workers: programs in other languages, which take executions over the API."""

import asyncio

from noonday.runtime.supervise import Loop, StopDeadline, Tasks, every
from noonday.wiring.drivers import WorkerDrivers
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.roles.worker import enqueueing_of
from noonday.wiring.stopping import drain_left_sec
from noonday.worker.options import WorkerOptions
from noonday.worker.remote import RemoteRuns
from noonday.worker.remote_handlers import RemoteHandlers
from noonday.worker.remote_pools import RemotePools
from noonday.worker.worker import Worker

_EXPIRE_SEC = 0.25
"""Seconds between two looks at leases."""


class RemoteRole(ProcessRole):
    """The pools of remote workers. Call it on the loop of the API. It does nothing until the first take."""

    def __init__(
        self, drivers: WorkerDrivers, context: ProcessContext, *, frozen_after_sec: float | None = None
    ) -> None:
        """`frozen_after_sec`: stall of the control loop after which a worker gives up its runs and takes a new identity."""
        self._drivers = drivers
        self._context = context
        self._frozen_after_sec = frozen_after_sec
        settings = context.settings.remote
        runs = RemoteRuns(drivers.clock, context.instance, settings.lease_sec)
        self.pools = RemotePools(runs, drivers.clock, settings.allowed_pools, self._new_worker)
        super().__init__("remote", Loop("remote", self.pools, drivers.clock, every(_EXPIRE_SEC), stuck_after_sec=30))

    def is_live(self) -> bool:
        return not self.pools.has_failed

    async def drain(self, deadline: StopDeadline) -> None:
        """Give nothing out any more, and let started runs end. The API must still answer."""
        await self.pools.drain(drain_left_sec(self._context.settings, deadline))

    async def hand_over(self, tasks: Tasks) -> None:
        """Give nothing out any more, and return what has not started."""
        await self.pools.drain(0.0)

    async def finish(self, tasks: Tasks, deadline: StopDeadline) -> None:
        """Interrupt what is still out, and leave the pools."""
        await self.pools.close(0.0)

    def _new_worker(self, handlers: RemoteHandlers) -> Worker:
        settings, drivers, context = self._context.settings, self._drivers, self._context
        return Worker(
            handlers={},
            bus=drivers.bus,
            signals=drivers.signals,
            breakers=drivers.breakers,
            throttles=drivers.throttles,
            clock=drivers.clock,
            keyring=drivers.keyring,
            metrics=context.metrics,
            tracing=context.tracing,
            options=WorkerOptions(
                concurrency={handlers.pool: settings.remote.concurrency},
                beat_sec=settings.worker.beat_sec,
                # A remote worker learns from its next heartbeat that it must end: its grace is its lease.
                cancel_grace_sec=0.0,
                retry_breaker_min_runs_per_minute=settings.worker.retry_breaker_min_runs_per_minute,
                result_limit=settings.limits.result_bytes,
                progress_limit=settings.limits.progress_bytes,
                frozen_after_sec=self._frozen_after_sec,
            ),
            handlers_loop=asyncio.get_running_loop(),
            remote=handlers,
            enqueueing=enqueueing_of(settings, {}, drivers.clock),
        )
