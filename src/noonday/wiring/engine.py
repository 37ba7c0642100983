"""All stages in one process, over whatever drivers they are given."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
import uuid_utils

from noonday.crypto.keyring import Keyring
from noonday.intake.catalogue import Catalogue
from noonday.intake.desk import Desk, Limits
from noonday.intake.reading import Reading
from noonday.intake.views import Viewer
from noonday.model.ids import InstanceId, JobId, new_job_id
from noonday.ports.archive import Archive
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.executions import Executions, Settled
from noonday.ports.firing import Firing
from noonday.ports.hot_index import HotIndex
from noonday.ports.jobs import Jobs
from noonday.ports.leases import Leases
from noonday.ports.signals import Signals
from noonday.recorder.flag_keeper import FlagKeeper
from noonday.recorder.recorder import Recorder
from noonday.runtime.metrics import Metrics
from noonday.runtime.supervise import Loop, every, stop
from noonday.runtime.tracing import Tracing
from noonday.scheduler.dispatcher import Dispatcher
from noonday.scheduler.hydrator import Hydrator
from noonday.scheduler.ownership import Ownership
from noonday.scheduler.sweeper import Sweeper
from noonday.wiring.housekeeping import Housekeeper
from noonday.wiring.settings import Settings
from noonday.worker.handler import Handler
from noonday.worker.worker import Worker, WorkerOptions

log = structlog.get_logger("noonday.engine")


@dataclass(frozen=True)
class Drivers:
    """What the stages stand on."""

    clock: Clock
    jobs: Jobs
    firing: Firing
    executions: Executions
    archive: Archive
    index: HotIndex
    bus: Bus
    signals: Signals
    leases: Leases
    keyring: Keyring


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
        self.metrics = Metrics()
        self.tracing = tracing or Tracing(None)
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completed with the error of a loop that ended; everything else stops then."""
        self.ownership = Ownership(self.instance, drivers.leases, drivers.firing)
        self.dispatcher = self._make_dispatcher()
        self.recorder = self._make_recorder()
        self.worker = self._make_worker(handlers, concurrency, handlers_loop or asyncio.get_running_loop())
        viewer = Viewer(drivers.keyring, settings.logs_url_template)
        self.reading = Reading(
            archive=drivers.archive,
            clock=drivers.clock,
            viewer=viewer,
            why_held=self.dispatcher.why_held,
            live=self.live,
        )
        self.desk = self._make_desk(viewer, new_id)
        self.loops = self._make_loops()

    async def start(self) -> None:
        await self.open()
        self.run()

    async def open(self) -> None:
        """Take over: own the partitions, recover what the last owner left, make the worker known."""
        await self.ownership.join()
        await self.recorder.open()
        await self.worker.open()
        await self.recorder.drain()
        await self.loops["flags"].service.run_once(self.drivers.clock.now_ms())

    def run(self) -> None:
        """Let every loop turn by itself."""
        for loop in self.loops.values():
            self._spawn(loop.run(), loop.name)
        self._spawn(self.recorder.tick_forever(), "ticks")
        for name, coroutine in self.worker.loops().items():
            self._spawn(coroutine, name)

    async def stop(self) -> None:
        """In the order of the flow: no more fires, let runs end, record them, give up the lease."""
        for name in ("dispatcher", "hydrator", "sweeper"):
            await self._end(name)
        await self.dispatcher.land()
        await self._end("take", "start")
        await self.worker.close()
        await self._end("report", "watch", "recorder")
        while await self.recorder.drain():
            pass
        await stop(self._tasks)
        self._tasks = []
        await self.ownership.leave()

    def ready(self) -> list[str]:
        """Why this engine should not be relied on at present."""
        if self.failed.done():
            return [f"a loop has ended: {self.failed.exception()!r}"]
        if not self._tasks:
            return ["not started"]
        reasons = [] if self.ownership.owner.epochs else ["it owns no partition: another process has taken over"]
        reasons += [
            f"{loop.name} last came round {loop.age_sec():.1f} s ago"
            for loop in self.loops.values()
            if loop.age_sec() > loop.stuck_after_sec
        ]
        return reasons + [
            f"{loop.name}: {loop.last_error}" for loop in self.loops.values() if loop.last_error and loop.failures > 3
        ]

    def live(self) -> dict[str, Any]:
        """Figures of the last seconds that only the running engine knows."""
        now = self.drivers.clock.monotonic()
        recent = [late for at, late in list(self.worker.recent) if now - at <= 10]
        recent.sort()
        return {
            "ratePerSec": round(sum(now - at <= 5 for at, _ in list(self.worker.recent)) / 5, 1),
            "latenessMs": {f"p{p}": _percentile(recent, p) for p in (50, 95, 99)},
            "tickAgeMs": round(self.loops["dispatcher"].age_sec() * 1000),
        }

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._on_ended)
        self._tasks.append(task)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() and not self.failed.done():
            log.error("loop ended", loop=task.get_name(), error=repr(task.exception()))
            self.failed.set_exception(task.exception() or RuntimeError())
            self.failed.exception()  # noted: whoever looks at `failed` decides what to do

    async def _end(self, *names: str) -> None:
        ending = [task for task in self._tasks if task.get_name() in names]
        self._tasks = [task for task in self._tasks if task not in ending]
        await stop(ending)

    def _make_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            ownership=self.ownership,
            firing=self.drivers.firing,
            index=self.drivers.index,
            bus=self.drivers.bus,
            signals=self.drivers.signals,
            clock=self.drivers.clock,
            metrics=self.metrics,
            tracing=self.tracing,
            batch=self.settings.scheduler.batch,
            hint_ahead_ms=self.settings.scheduler.hint_ahead_sec * 1000,
        )

    def _make_recorder(self) -> Recorder:
        recorder = Recorder(
            instance=self.instance,
            partition=0,
            executions=self.drivers.executions,
            bus=self.drivers.bus,
            index=self.drivers.index,
            signals=self.drivers.signals,
            clock=self.drivers.clock,
            metrics=self.metrics,
            hint_ahead_ms=self.settings.scheduler.hint_ahead_sec * 1000,
        )
        recorder.on_settled = self._on_settled
        return recorder

    def _make_worker(
        self,
        handlers: Mapping[tuple[str, str], Handler],
        concurrency: Mapping[str, int] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> Worker:
        worker = self.settings.worker
        pools = dict.fromkeys((pool for pool, _ in handlers), worker.concurrency) | dict(concurrency or {})
        options = WorkerOptions(
            concurrency=pools,
            threads=worker.threads,
            processes=worker.processes,
            beat_sec=worker.beat_sec,
            drain_sec=worker.drain_sec,
            cancel_grace_sec=worker.cancel_grace_sec,
            result_limit=self.settings.limits.result_bytes,
        )
        return Worker(
            handlers=handlers,
            bus=self.drivers.bus,
            signals=self.drivers.signals,
            clock=self.drivers.clock,
            keyring=self.drivers.keyring,
            metrics=self.metrics,
            tracing=self.tracing,
            options=options,
            handlers_loop=loop,
        )

    def _make_desk(self, viewer: Viewer, new_id: Callable[[], JobId]) -> Desk:
        drivers, limits = self.drivers, self.settings.limits
        desk = Desk(
            jobs=drivers.jobs,
            archive=drivers.archive,
            reading=self.reading,
            catalogue=Catalogue(drivers.archive, drivers.clock),
            index=drivers.index,
            signals=drivers.signals,
            clock=drivers.clock,
            keyring=drivers.keyring,
            viewer=viewer,
            limits=Limits(limits.payload_bytes, limits.batch_jobs),
            hint_ahead_ms=self.settings.scheduler.hint_ahead_sec * 1000,
            tracing=self.tracing,
            new_id=new_id,
        )
        desk.on_placed = lambda: self.loops["dispatcher"].wake.set()
        return desk

    def _make_loops(self) -> dict[str, Loop]:
        drivers, scheduler = self.drivers, self.settings.scheduler
        hydrator = Hydrator(drivers.firing, drivers.index, scheduler.hydrate_ahead_sec * 1000)
        sweeper = Sweeper(
            firing=drivers.firing,
            executions=drivers.executions,
            index=drivers.index,
            bus=drivers.bus,
            has_in_hand=self.dispatcher.has_in_hand,
            grace_ms=scheduler.grace_ms,
        )
        flags = FlagKeeper(drivers.executions, drivers.signals, lambda: list(self.worker.pools))
        housekeeper = Housekeeper(
            drivers, self.settings.retention, self.settings.limits, self.metrics, lambda: self.loops
        )
        loops = [
            self._loop("dispatcher", self.dispatcher, self.dispatcher.next_wait, 5),
            self._loop("hydrator", _Waking(hydrator, lambda: self.loops["dispatcher"].wake.set()), every(1.0), 30),
            self._loop("sweeper", _Waking(sweeper, lambda: self.loops["dispatcher"].wake.set()),
                       every(scheduler.sweep_every_ms / 1000), 30),
            self._loop("recorder", self.recorder, every(0), 10),
            self._loop("ownership", self.ownership, every(1.0), 10),
            self._loop("flags", flags, every(0.5), 10),
            self._loop("housekeeper", housekeeper, every(5.0), 120),
        ]  # fmt: skip
        return {loop.name: loop for loop in loops}

    def _loop(self, name: str, service: Any, wait: Any, stuck_after_sec: float) -> Loop:
        return Loop(name, service, self.drivers.clock, wait, stuck_after_sec=stuck_after_sec)

    def _on_settled(self, settled: Settled) -> None:
        if settled.freed:
            self.dispatcher.release_held()
        if settled.entries or settled.freed:
            self.loops["dispatcher"].wake.set()


class _Waking:
    """A service that wakes another when it found something."""

    def __init__(self, service: Any, wake: Callable[[], None]) -> None:
        self._service = service
        self._wake = wake

    async def run_once(self, now_ms: int) -> int:
        found: int = await self._service.run_once(now_ms)
        if found:
            self._wake()
        return found


def _percentile(values: list[int], percent: int) -> int | None:
    return values[min(len(values) - 1, len(values) * percent // 100)] if values else None
