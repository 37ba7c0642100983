"""A clock that stands still until a test advances it."""

import asyncio

from noonday.ports.clock import Clock
from tests.support.factories import NOW_MS

Sleeper = tuple[float, "asyncio.Future[None]"]


class ManualClock(Clock):
    """A manual clock. Sleepers of any loop, in any thread, wake when the test has advanced the clock far enough."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0
        self._sleepers: list[Sleeper] = []

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = (self._monotonic + seconds, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            self._sleepers = [each for each in self._sleepers if each is not sleeper]

    @property
    def sleepers(self) -> int:
        return len(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Advance all clocks."""
        self._monotonic += seconds
        self.step(seconds)
        for wake_at, future in self._sleepers:
            if wake_at <= self._monotonic:
                future.get_loop().call_soon_threadsafe(_wake, future)

    def step(self, seconds: float) -> None:
        """Set the wall clock; sleepers do not notice."""
        self._now_ms += round(seconds * 1000)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
