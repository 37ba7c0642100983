"""A worker on a bus and signals in memory, whose clock and loops the test turns."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.breakers import MemoryBreakers
from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.signals import MemorySignals
from noonday.drivers.memory.throttles import MemoryThrottles
from noonday.model.execution import Outcome
from noonday.model.handler import Handler, Mode
from noonday.model.message import Beat, Dispatch, Report
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.runtime.clock import SystemClock
from noonday.runtime.metrics import Metrics
from noonday.runtime.tracing import Tracing
from noonday.worker.host import HandlerThread
from noonday.worker.options import WorkerOptions
from noonday.worker.worker import Worker
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS
from tests.support.factories import dispatch as any_dispatch
from tests.worker import process_handlers

POOL = "p"
PATIENCE_SEC = 60.0


class Rig:
    """One worker."""

    def __init__(self, worker: Worker, bus: Bus, signals: MemorySignals, clock: Clock, metrics: Metrics) -> None:
        self.worker = worker
        self.bus = bus
        self.signals = signals
        self.clock = clock
        self.metrics = metrics

    async def publish(self, handler: str, *, pool: str = POOL, **fields: Any) -> Dispatch:
        made = any_dispatch(
            pool=pool, handler=handler, due_ms=self.clock.now_ms(), fired_ms=self.clock.now_ms(), payload=None, **fields
        )
        await self.bus.publish([made])
        return made

    async def turn(self) -> None:
        """Take, start, watch and report once."""
        await self.worker.take_once(wait_sec=0)
        await self.worker.start_once()
        await self.worker.watch_once()
        await self.worker.report_once()

    async def reports(self, of: Dispatch | None = None) -> list[Report]:
        """The ends on the log."""
        batch = await self.bus.read(0, 0, 100_000, 0)
        found = [each for each in batch.entries if isinstance(each, Report) and each.outcome != Outcome.STARTED]
        return [each for each in found if of is None or each.execution_id == of.execution_id]

    async def beats(self) -> list[Beat]:
        batch = await self.bus.read(0, 0, 100_000, 0)
        return [each for each in batch.entries if isinstance(each, Beat)]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    async def ended(self, of: Dispatch) -> Report:
        """Turn until the run is reported, and return the report."""

        async def look() -> Report | None:
            await self.turn()
            found = await self.reports(of)
            return found[0] if found else None

        report = await eventually(look, PATIENCE_SEC)
        assert report is not None
        return report

    async def until(self, holds: Callable[[], Any]) -> None:
        """Turn until a condition is true."""

        async def look() -> Any:
            await self.turn()
            return holds()

        await eventually(look, PATIENCE_SEC)


def handler(call: Callable[..., Any], mode: Mode, *, pool: str = POOL, **fields: Any) -> Handler:
    decode, encode = process_handlers.codec_of(call)
    return Handler(call.__name__, pool, call, mode, decode, encode, **fields)


@asynccontextmanager
async def rig(
    handlers: Sequence[Handler],
    *,
    release: threading.Event | None = None,
    real_time: bool = False,
    bus: Bus | None = None,
    signals: MemorySignals | None = None,
    **options: Any,
) -> AsyncIterator[Rig]:
    """`options` are those of the worker; every pool has room for 10 runs by default.

    `release` is set at the end, for handlers that ignore everything else.
    """
    clock = SystemClock() if real_time else _clock()
    bus, signals, metrics = bus or MemoryBus(clock), signals or MemorySignals(), Metrics()
    thread = HandlerThread(asyncio.new_event_loop, "handlers")
    concurrency = options.pop("concurrency", dict.fromkeys((each.pool for each in handlers), 10))
    worker = Worker(
        handlers={(each.pool, each.name): each for each in handlers},
        bus=bus,
        signals=signals,
        breakers=MemoryBreakers(),
        throttles=MemoryThrottles(),
        clock=clock,
        keyring=Keyring.generate(),
        metrics=metrics,
        tracing=Tracing(None),
        options=WorkerOptions(concurrency=concurrency, **options),
        handlers_loop=thread.loop,
    )
    for pool in concurrency:
        await signals.begin_generation(pool, 0)
    await worker.open()
    try:
        yield Rig(worker, bus, signals, clock, metrics)
    finally:
        if release is not None:
            release.set()
        worker.abandon()
        thread.close()


def _clock() -> ManualClock:
    """A clock that has run for a while, so that no time is zero."""
    clock = ManualClock(NOW_MS - 1_000)
    clock.advance(1)
    return clock
