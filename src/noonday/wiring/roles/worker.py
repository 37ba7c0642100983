"""The role of a worker: run handlers. It needs no store."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from noonday.model.handler import Handler
from noonday.model.ids import WorkerId, new_worker_id
from noonday.model.pool import BUILT_IN_POOLS
from noonday.ports.clock import Clock
from noonday.runtime.supervise import StopDeadline, Tasks
from noonday.sdk.registry import Registry
from noonday.wiring.drivers import WorkerDrivers
from noonday.wiring.roles.role import ProcessContext, ProcessRole
from noonday.wiring.settings import Settings
from noonday.wiring.stopping import drain_left_sec
from noonday.worker.enqueueing import Enqueueing
from noonday.worker.options import WorkerOptions
from noonday.worker.worker import Worker


class WorkerRole(ProcessRole):
    """A worker for the pools in `concurrency`."""

    def __init__(
        self,
        handlers: Mapping[tuple[str, str], Handler],
        concurrency: Mapping[str, int],
        drivers: WorkerDrivers,
        context: ProcessContext,
        *,
        handlers_loop: asyncio.AbstractEventLoop,
        frozen_after_sec: float | None = None,
        new_id: Callable[[], WorkerId] = new_worker_id,
    ) -> None:
        """`frozen_after_sec`: stall of the control loop after which the worker gives up its runs and takes a new identity."""
        super().__init__("worker")
        self._settings = context.settings
        self.worker = Worker(
            handlers=handlers,
            bus=drivers.bus,
            signals=drivers.signals,
            breakers=drivers.breakers,
            throttles=drivers.throttles,
            clock=drivers.clock,
            keyring=drivers.keyring,
            metrics=context.metrics,
            tracing=context.tracing,
            options=_options(context.settings, concurrency, frozen_after_sec),
            handlers_loop=handlers_loop,
            completions=drivers.completions,
            enqueueing=enqueueing_of(context.settings, handlers, drivers.clock),
            new_id=new_id,
        )

    def coroutines(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return self.worker.loops()

    def is_live(self) -> bool:
        return self.worker.live()

    def reasons_not_ready(self) -> list[str]:
        return self.worker.reasons_not_ready()

    async def hand_over(self, tasks: Tasks) -> None:
        """Take no further executions. Running ones may finish."""
        await self.worker.stop_taking()

    async def finish(self, tasks: Tasks, deadline: StopDeadline) -> None:
        """Let runs end within the drain time that is left, and interrupt the others."""
        await self.worker.close(drain_left_sec(self._settings, deadline))


def enqueueing_of(settings: Settings, handlers: Mapping[tuple[str, str], Handler], clock: Clock) -> Enqueueing:
    """Let handlers enqueue jobs as their application does. Built-in handlers are for the services that they belong to."""
    registry = Registry()
    registry.handlers = {key: handler for key, handler in handlers.items() if handler.pool not in BUILT_IN_POOLS}
    limits = settings.limits
    return Enqueueing(registry.spec_for, clock.now_ms, registry.handlers, limits.enqueued_jobs, limits.enqueued_bytes)


def _options(settings: Settings, concurrency: Mapping[str, int], frozen_after_sec: float | None) -> WorkerOptions:
    worker = settings.worker
    return WorkerOptions(
        concurrency=concurrency,
        shares=dict.fromkeys(BUILT_IN_POOLS, settings.webhooks.share_percent / 100),
        threads=worker.threads,
        processes=worker.processes,
        beat_sec=worker.beat_sec,
        drain_sec=worker.drain_sec,
        cancel_grace_sec=worker.cancel_grace_sec,
        max_abandoned=worker.max_abandoned,
        retry_breaker_min_runs_per_minute=worker.retry_breaker_min_runs_per_minute,
        result_limit=settings.limits.result_bytes,
        progress_limit=settings.limits.progress_bytes,
        failure_log_level=logging.getLevelNamesMapping()[worker.failure_log_level],
        log_limit=settings.limits.log_bytes,
        log_level=logging.getLevelNamesMapping()[worker.handler_log_level],
        hook_timeout_sec=worker.hook_timeout_sec,
        frozen_after_sec=frozen_after_sec,
    )
