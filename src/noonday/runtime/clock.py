"""The real clock. No other module reads the time or sleeps."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable

from noonday.ports.clock import Clock, wait_by_the_loop


class SystemClock(Clock):
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, event: asyncio.Event, seconds: float) -> bool:
        return await wait_by_the_loop(event, seconds)


class ReferenceClock(SystemClock):
    """The clock of this machine, corrected by its offset to the clock that the whole installation uses."""

    def __init__(self) -> None:
        self.offset_ms = 0
        """Added to the system clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.offset_ms

    def system_ms(self) -> float:
        """Return the system clock's time, uncorrected."""
        return time.time_ns() / 1e6


def _safe_offset_ms(round_trip_ms: float, measured_ms: float) -> int:
    """Return the clock offset, rounded late by half the round trip so that no job starts early.

    Returns 0 if the true offset may be 0. How the round trip divides between request and answer is unknown.
    """
    uncertainty_ms = round_trip_ms / 2 + 1
    if abs(measured_ms) <= uncertainty_ms:
        return 0
    return math.floor(measured_ms - round_trip_ms / 2)


class ClockKeeper:
    """Measures the offset of the system clock to the reference clock, and corrects for it.

    The quickest of the last KEEP answers counts: the less time an answer takes, the smaller its error.
    """

    KEEP = 8

    def __init__(
        self,
        clock: ReferenceClock,
        read_ms: Callable[[], Awaitable[int]],
        show: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """`show` is called with the seconds that the system clock is ahead of the reference."""
        self._clock = clock
        self._read_ms = read_ms
        self._show = show
        self._samples: deque[tuple[float, float]] = deque(maxlen=self.KEEP)
        """(round-trip time, measured offset) of the last answers, in ms."""

    async def run_once(self, now_ms: int) -> int:
        before_ms, sent_at = self._clock.system_ms(), self._clock.monotonic()
        reference_ms = await self._read_ms()
        round_trip_ms = (self._clock.monotonic() - sent_at) * 1000
        measured_ms = reference_ms + 0.5 - (before_ms + round_trip_ms / 2)
        if self._samples and abs(measured_ms - self._samples[-1][1]) > 100 + round_trip_ms:
            self._samples.clear()  # one of the clocks was set
        self._samples.append((round_trip_ms, measured_ms))
        self._clock.offset_ms = _safe_offset_ms(*min(self._samples))
        self._show(-self._clock.offset_ms / 1000)
        return 0
