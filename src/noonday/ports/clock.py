"""The clock, which is passed to all that need the time."""

import asyncio
from abc import ABC, abstractmethod


class Clock(ABC):
    """The only source of time. The clock of a test stands still until the test advances it."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the wall-clock time, corrected to the reference clock, in milliseconds since the Unix epoch."""

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds that never go back, for waiting and measuring."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait by the monotonic clock, so that a step of the wall clock has no effect."""

    async def wait_for(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event, at most `seconds`. Returns whether it is set."""
        sleeper = asyncio.ensure_future(self.sleep(seconds))
        arrival = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeper, arrival}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            arrival.cancel()
        return event.is_set()


async def wait_by_the_loop(event: asyncio.Event, seconds: float) -> bool:
    """Wait like `Clock.wait_for` but without a task, for clocks that agree with the time of the event loop."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
