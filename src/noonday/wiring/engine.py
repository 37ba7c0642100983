"""The engine: all stages in one process, on any set of drivers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
import uuid_utils

from noonday.alerts.incident_consumer import IncidentConsumer
from noonday.model.handler import Handler
from noonday.model.ids import InstanceId, JobId, new_job_id
from noonday.recorder.revocation_keeper import RevocationKeeper
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, StopDeadline, Tasks, every, reasons_not_ready
from noonday.runtime.tracing import Tracing
from noonday.tasks.endpoint_disabler import ROUND_SEC
from noonday.wiring.housekeeping import Housekeeper
from noonday.wiring.parts import (
    Drivers,
    IntakePart,
    ProcessContext,
    SchedulerPart,
    by_name,
    close_worker,
    dead_mans_switch_of,
    recorder_of,
    stop_deadline,
    worker_of,
)
from noonday.wiring.settings import Settings

log = structlog.get_logger("noonday.engine")


class Engine:
    """Intake, scheduler, worker and recorder of one process, which start and stop together."""

    def __init__(
        self,
        drivers: Drivers,
        settings: Settings,
        handlers: Mapping[tuple[str, str], Handler],
        *,
        handlers_loop: asyncio.AbstractEventLoop | None = None,
        concurrency: Mapping[str, int] | None = None,
        tracing: Tracing | None = None,
        new_id: Callable[[], JobId] = new_job_id,
    ) -> None:
        """Call this on the event loop that the engine will run on. Handlers run on `handlers_loop`, by default the same loop."""
        self.drivers = drivers
        self.settings = settings
        self.instance = InstanceId(f"i-{uuid_utils.uuid7().hex[:20]}")
        self.metrics = Metrics(settings.metrics.named_tenants)
        self.tracing = tracing or Tracing(None)
        self._tasks = Tasks()
        context = ProcessContext(self.instance, settings, self.metrics, self.tracing)
        scheduler = SchedulerPart(drivers, context)
        self.ownership, self.dispatcher = scheduler.ownership, scheduler.dispatcher
        self.recorder = recorder_of(0, drivers, context)
        self.worker = worker_of(
            handlers,
            context,
            bus=drivers.bus,
            signals=drivers.signals,
            breakers=drivers.breakers,
            throttles=drivers.throttles,
            clock=drivers.clock,
            keyring=drivers.keyring,
            concurrency=dict.fromkeys((pool for pool, _ in handlers), settings.worker.concurrency)
            | dict(concurrency or {}),
            handlers_loop=handlers_loop or asyncio.get_running_loop(),
        )
        intake = IntakePart(drivers, context, live=self.live, new_id=new_id, on_placed=scheduler.wake)
        self.services, self.tasks, self.secrets = intake.services, intake.tasks, intake.secrets
        self.alerts = intake.alerts
        self.preferences, self._notifier = intake.preferences, intake.notifier
        self._endpoint_disabler = intake.endpoint_disabler
        self.recorder.on_settled = scheduler.on_settled
        self.loops = scheduler.loops | self._other_loops()

    async def start(self) -> None:
        await self.open()
        self.run()

    async def open(self) -> None:
        """Take ownership of the partitions, recover the state of the last owner, and register the worker."""
        await self.ownership.join()
        await self.recorder.open()
        await self.worker.open()
        await self.recorder.drain()
        await self.loops["revocations"].service.run_once(self.drivers.clock.now_ms())

    def run(self) -> None:
        """Start a task for each loop."""
        for loop in self.loops.values():
            self.metrics.watch_tick(loop.name, loop.age_sec)
            self._tasks.spawn(loop.run(), loop.name)
        self._tasks.spawn(self.recorder.tick_forever(), "ticks")
        for name, coroutine in self.worker.loops().items():
            self._tasks.spawn(coroutine, name)

    async def start_announced(self) -> None:
        """Record the starts that the worker announces, and then start those runs. For tests that run no loops."""
        if not self.worker.is_announcing:
            return
        announcing = asyncio.ensure_future(self.worker.announce_once())
        while not announcing.done():
            await self.recorder.drain()
            await asyncio.sleep(0)
        await announcing

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Stop in the order of the data flow: stop firing, let runs end, record them, release the lease.

        Returns within the drain time, the cancel grace and 2 s, or by the deadline. The next start completes any step that
        was not done by then.
        """
        deadline = deadline or stop_deadline(self.settings, self.drivers.clock)
        await deadline.step("dispatcher", self._stop_firing())
        await deadline.step("take", self.worker.stop_taking())
        await close_worker(self.worker, self.settings, deadline)
        await deadline.step("recorder", self._drain_recorder())
        await deadline.step("loops", self._tasks.end())
        await deadline.step("lease", self.ownership.leave())

    async def _stop_firing(self) -> None:
        for name in ("dispatcher", "hydrator", "sweeper"):
            await self._tasks.end(name)
        await self.dispatcher.drain()

    async def _drain_recorder(self) -> None:
        await self._tasks.end("report", "watch", "recorder")
        while await self.recorder.drain():
            pass

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Future that completes with the error of the first loop that ended. The caller then stops the engine."""
        return self._tasks.failed

    def ready(self) -> list[str]:
        """Return the reasons why this engine is not ready; an empty list if it is ready."""
        if self.failed.done():
            return [f"a loop has failed: {self.failed.exception()!r}"]
        if not self._tasks:
            return ["not started"]
        reasons = [] if self.ownership.partitions else ["owns no partition: another process has taken over"]
        return (
            reasons
            + reasons_not_ready(self.loops.values())
            + self.dispatcher.reasons_not_ready()
            + self.worker.troubles()
        )

    def live(self) -> dict[str, Any]:
        """Return the values of the running engine that the store does not have."""
        return {"tickAgeMs": round(self.loops["dispatcher"].age_sec() * 1000)}

    def _other_loops(self) -> dict[str, Loop]:
        drivers = self.drivers
        revocations = RevocationKeeper(drivers.executions, drivers.signals, self._pools, drivers.clock)
        housekeeper = Housekeeper(drivers, self.settings.retention, self.settings.limits, self.metrics)
        incident_consumer = IncidentConsumer(drivers.executions, drivers.alerts, self.services.jobs)
        return by_name(
            Loop("recorder", self.recorder, drivers.clock, every(0), stuck_after_sec=10),
            Loop("revocations", revocations, drivers.clock, every(0.5), stuck_after_sec=10),
            Loop("housekeeper", housekeeper, drivers.clock, every(5.0), stuck_after_sec=120),
            Loop("incidents", incident_consumer, drivers.clock, every(1.0), stuck_after_sec=60),
            Loop("endpoint-disabler", self._endpoint_disabler, drivers.clock, every(ROUND_SEC), stuck_after_sec=300),
            Loop(
                "dead-mans-switch",
                dead_mans_switch_of(drivers, self.settings),
                drivers.clock,
                every(5.0),
                stuck_after_sec=120,
            ),
            Loop("notifier", self._notifier, drivers.clock, every(1.0), stuck_after_sec=60),
        )

    async def _pools(self) -> Sequence[str]:
        return list(self.worker.pools)
