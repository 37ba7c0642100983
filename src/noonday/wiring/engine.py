"""All stages in one process, over whatever drivers they are given."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
import uuid_utils

from noonday.alerts.incident_consumer import IncidentConsumer
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
from noonday.worker.handler import Handler

log = structlog.get_logger("noonday.engine")


class Engine:
    """Intake, scheduler, worker and recorder, started and stopped together."""

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
        """Must be made on the loop it will run on. Handlers run on `handlers_loop`, or on the same loop."""
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
        intake = IntakePart(drivers, context, live=self.live, new_id=new_id)
        self.job_service, self.queries, self.tasks, self.secrets = (
            intake.job_service,
            intake.queries,
            intake.tasks,
            intake.secrets,
        )
        self.alerts = intake.alerts
        self.preferences, self._notifier = intake.preferences, intake.notifier
        self._endpoint_disabler = intake.endpoint_disabler
        scheduler.serve(intake)
        self.recorder.on_settled = scheduler.on_settled
        self.loops = scheduler.loops | self._other_loops()

    async def start(self) -> None:
        await self.open()
        self.run()

    async def open(self) -> None:
        """Take over: own the partitions, recover what the last owner left, make the worker known."""
        await self.ownership.join()
        await self.recorder.open()
        await self.worker.open()
        await self.recorder.drain()
        await self.loops["revocations"].service.run_once(self.drivers.clock.now_ms())

    def run(self) -> None:
        """Let every loop turn by itself."""
        for loop in self.loops.values():
            self.metrics.watch_tick(loop.name, loop.age_sec)
            self._tasks.spawn(loop.run(), loop.name)
        self._tasks.spawn(self.recorder.tick_forever(), "ticks")
        for name, coroutine in self.worker.loops().items():
            self._tasks.spawn(coroutine, name)

    async def start_announced(self) -> None:
        """By hand: record starts that are reported ahead of their runs, and let those begin."""
        if not self.worker.is_announcing:
            return
        announcing = asyncio.ensure_future(self.worker.announce_once())
        while not announcing.done():
            await self.recorder.drain()
            await asyncio.sleep(0)
        await announcing

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """In the order of the flow: no more fires, let runs end, record them, give up the lease.

        Ends within the drain time, the grace and 2 s, or by the deadline. What could not be done by then, the next start does.
        """
        deadline = deadline or stop_deadline(self.settings, self.drivers.clock)
        await deadline.step("dispatcher", self._stop_firing())
        await deadline.step("take", self.worker.stop_taking())
        await close_worker(self.worker, self.settings, deadline)
        await deadline.step("recorder", self._record_the_rest())
        await deadline.step("loops", self._tasks.end())
        await deadline.step("lease", self.ownership.leave())

    async def _stop_firing(self) -> None:
        for name in ("dispatcher", "hydrator", "sweeper"):
            await self._tasks.end(name)
        await self.dispatcher.land()

    async def _record_the_rest(self) -> None:
        await self._tasks.end("report", "watch", "recorder")
        while await self.recorder.drain():
            pass

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Completed with the error of a loop that ended; everything else stops then."""
        return self._tasks.failed

    def ready(self) -> list[str]:
        """Why this engine should not be relied on at present."""
        if self.failed.done():
            return [f"a loop has ended: {self.failed.exception()!r}"]
        if not self._tasks:
            return ["not started"]
        reasons = [] if self.ownership.partitions else ["it owns no partition: another process has taken over"]
        return (
            reasons
            + reasons_not_ready(self.loops.values())
            + self.dispatcher.reasons_not_ready()
            + self.worker.troubles()
        )

    def live(self) -> dict[str, Any]:
        """What only the running engine knows."""
        return {"tickAgeMs": round(self.loops["dispatcher"].age_sec() * 1000)}

    def _other_loops(self) -> dict[str, Loop]:
        drivers = self.drivers
        revocations = RevocationKeeper(drivers.executions, drivers.signals, self._pools, drivers.clock)
        housekeeper = Housekeeper(drivers, self.settings.retention, self.settings.limits, self.metrics)
        incident_consumer = IncidentConsumer(drivers.executions, drivers.alerts, self.job_service)
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
