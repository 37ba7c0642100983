"""A worker that is closed while the bus or the signals are away."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.types import EventDict

from noonday.drivers.memory.bus import MemoryBus
from noonday.drivers.memory.signals import MemorySignals
from noonday.model.errors import BusUnavailable
from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.model.ids import ExecutionId
from noonday.model.message import Bye, LogEntry, Oversized
from noonday.runtime.clock import SystemClock
from noonday.worker.context import Context
from tests.worker.rig import PATIENCE_SEC, handler, rig


class AwayBus(MemoryBus):
    """Refuses reports, or never answers."""

    away: str | None = None

    async def report(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[Oversized[LogEntry]]:
        if self.away == "refuses":
            raise BusUnavailable("away")
        if self.away == "hangs":
            await asyncio.get_running_loop().create_future()
        return await super().report(partition, entries)


class HangingSignals(MemorySignals):
    """Signals that never answer an ack, like a frozen Redis."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def ack(self, names: Sequence[tuple[ExecutionId, int]]) -> None:
        self.asked.set()
        await asyncio.get_running_loop().create_future()


async def quick(ctx: Context) -> None:
    pass


async def wait(ctx: Context) -> None:
    await asyncio.sleep(3600)


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    usual = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with capture_logs() as logs:
        yield logs
    structlog.configure(wrapper_class=usual)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_closing_ends_although_nothing_can_be_reported(how: str, logs: list[EventDict]) -> None:
    bus = AwayBus(SystemClock())
    async with rig([handler(wait, Mode.ASYNC)], bus=bus, real_time=True, drain_sec=0.05, cancel_grace_sec=0.05) as it:
        await it.publish("wait")
        await it.until(lambda: it.metric("noonday_busy_slots", pool="p") == 1)
        bus.away = how
        async with asyncio.timeout(PATIENCE_SEC):
            await it.worker.close()

        assert "stopped without acknowledged reports" in [line["event"] for line in logs]


@pytest.mark.slow
async def test_run_that_ended_while_the_bus_was_away_is_reported_if_the_bus_returns_in_time() -> None:
    bus = AwayBus(SystemClock())
    async with rig(
        [handler(wait, Mode.ASYNC)], bus=bus, real_time=True, drain_sec=PATIENCE_SEC, cancel_grace_sec=1
    ) as it:
        made = await it.publish("wait", timeout_sec=0.05)
        await it.until(lambda: it.metric("noonday_busy_slots", pool="p") == 1)
        bus.away = "refuses"
        watching = asyncio.create_task(it.worker._control.run_forever())
        closing = asyncio.create_task(it.worker.close())
        while it.worker.has_runs:
            await asyncio.sleep(0.01)
        bus.away = None
        await closing
        watching.cancel()

        assert [each.outcome for each in await it.reports(made)] == [Outcome.TIMED_OUT]


@pytest.mark.slow
async def test_a_stop_reports_its_runs_while_the_signals_hang(logs: list[EventDict]) -> None:
    """A run whose report waits for Redis would be judged lost, and would have used up its attempt."""
    signals = HangingSignals()
    handlers = [handler(wait, Mode.ASYNC), handler(quick, Mode.ASYNC)]
    async with rig(handlers, signals=signals, real_time=True, drain_sec=0.05, cancel_grace_sec=PATIENCE_SEC) as it:
        interrupted = await it.publish("wait")
        await it.until(lambda: it.metric("noonday_busy_slots", pool="p") == 1)
        succeeded = await it.publish("quick")
        await it.worker.take_once(wait_sec=0)
        await it.worker.start_once()
        reporting = asyncio.create_task(it.worker._reporter.run_forever())
        await signals.asked.wait()
        await it.worker.close()
        reporting.cancel()

        assert [each.outcome for each in await it.reports(succeeded)] == [Outcome.SUCCEEDED]
        assert [each.outcome for each in await it.reports(interrupted)] == [Outcome.INTERRUPTED]
        assert isinstance((await it.bus.read(0, 0, 100, 0)).entries[-1], Bye)
        assert [line for line in logs if line["event"] == "stopped without acknowledged reports"] == []
