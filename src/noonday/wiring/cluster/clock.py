"""The clock of a process in a cluster: measured by the store's clock, which is the reference of all."""

from collections.abc import Awaitable, Callable

from noonday.model.errors import BadSettings
from noonday.ports.clock import Clock
from noonday.runtime.clock import ClockKeeper, ReferenceClock
from noonday.runtime.supervise import Loop, every
from noonday.wiring.roles.role import ProcessContext, ProcessRole

CLOCK_SEC = 2.0
"""Interval of clock measurements, in seconds."""


class ClockRole(ProcessRole):
    """Keeps the clock of a process right. A process whose clock is too far off does not start, and is not ready."""

    def __init__(self, clock: ReferenceClock, read_ms: Callable[[], Awaitable[int]], context: ProcessContext) -> None:
        """`read_ms` returns the time of the store."""
        self._clock = clock
        self._limit_sec = context.settings.cluster.max_clock_offset_sec
        self._keeper = ClockKeeper(clock, read_ms, context.metrics.clock_offset.set)
        super().__init__("clock", Loop("clock", self._keeper, clock, every(CLOCK_SEC), stuck_after_sec=60))

    async def measure(self) -> None:
        """Measure the clock once."""
        await self._keeper.run_once(0)

    def refuse_wrong(self) -> None:
        """Raise BadSettings if the clock is too far off."""
        for reason in self.reasons_not_ready():
            raise BadSettings(f"{reason}: synchronize it (NTP), or raise cluster.max_clock_offset_sec")

    def reasons_not_ready(self) -> list[str]:
        offset_sec, limit = self._clock.offset_ms / 1000, self._limit_sec
        if abs(offset_sec) <= limit:
            return []
        return [
            f"the clock of this machine differs from the database's by {-offset_sec:+.1f} s; the limit is {limit} s"
        ]


def time_publishing(clock: Clock, publish: Callable[[], Awaitable[int]]) -> ProcessRole:
    """Publish the store's time to workers, which have no access to the store."""
    return ProcessRole("time", Loop("time", _TimePublisher(publish), clock, every(CLOCK_SEC), stuck_after_sec=60))


class _TimePublisher:
    def __init__(self, publish: Callable[[], Awaitable[int]]) -> None:
        self._publish = publish

    async def run_once(self, now_ms: int) -> int:
        await self._publish()
        return 0
