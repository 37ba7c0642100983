"""Time, passed in."""

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
