"""The real clock. Reading time and sleeping happen here and nowhere else."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable

from noonday.ports.clock import Clock, wait_by_the_loop


class SystemClock(Clock):
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, event: asyncio.Event, seconds: float) -> bool:
        return await wait_by_the_loop(event, seconds)


class ReferenceClock(SystemClock):
    """The system's clock, corrected by its distance from the one clock that an installation goes by."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms

    def own_ms(self) -> float:
        """The system's clock, uncorrected."""
        return time.time_ns() / 1e6


def _cautious(took_ms: float, measured_ms: float) -> int:
    """The offset to go by: none if there may be none; else so that nothing starts early, whatever of the answer's time was
    spent on the way there and on the way back."""
    unsure_ms = took_ms / 2 + 1
    if abs(measured_ms) <= unsure_ms:
        return 0
    return math.floor(measured_ms - took_ms / 2)


class ClockKeeper:
    """Measures how far the system's clock is from the reference, and corrects for it.

    The quickest of the last answers is believed: the less time an answer takes, the less it can be wrong.
    """

    KEEP = 8

    def __init__(
        self,
        clock: ReferenceClock,
        read_ms: Callable[[], Awaitable[int]],
        show: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """`show` is told how far our own clock is ahead of the reference, in seconds."""
        self._clock = clock
        self._read_ms = read_ms
        self._show = show
        self._samples: deque[tuple[float, float]] = deque(maxlen=self.KEEP)
        """(how long the answer took, the offset it gives), in ms."""

    async def run_once(self, now_ms: int) -> int:
        before_ms, began = self._clock.own_ms(), self._clock.monotonic()
        reference = await self._read_ms()
        took_ms = (self._clock.monotonic() - began) * 1000
        measured = reference + 0.5 - (before_ms + took_ms / 2)
        if self._samples and abs(measured - self._samples[-1][1]) > 100 + took_ms:
            self._samples.clear()  # one of the clocks was set
        self._samples.append((took_ms, measured))
        self._clock.offset_ms = _cautious(*min(self._samples))
        self._show(-self._clock.offset_ms / 1000)
        return 0
