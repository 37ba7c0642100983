"""Time, passed in."""

import asyncio
from abc import ABC, abstractmethod


class Clock(ABC):
    """The only source of time. A test owns one that stands still until it is told to move."""

    @abstractmethod
    def now_ms(self) -> int:
        """The wall clock, corrected to the reference clock, in milliseconds since the Unix epoch."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds that never go back, for waiting and measuring."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait by the monotonic clock: a step of the wall clock does not disturb it."""

    async def wait_for(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event, at most so long. Whether it came."""
        sleeper = asyncio.ensure_future(self.sleep(seconds))
        arrival = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeper, arrival}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            arrival.cancel()
        return event.is_set()


async def wait_by_the_loop(event: asyncio.Event, seconds: float) -> bool:
    """As `Clock.wait_for`, for clocks that the time of the event loop goes by: without a task for the wait."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
