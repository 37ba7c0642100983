"""Real time, with a wall clock that a scenario may set."""

import asyncio
import time
from datetime import UTC, datetime

from noonday.ports.clock import Clock

NOON = datetime(2030, 1, 15, 12, 0, 30, tzinfo=UTC)


class SetClock(Clock):
    """A clock that runs by itself, starts at an hour of the scenario's choice, and can be stepped."""

    def __init__(self, start: datetime = NOON) -> None:
        self._wall_ms = round(start.timestamp() * 1000)
        self._begun = time.monotonic()
        self._passed = 0.0

    def now_ms(self) -> int:
        return self._wall_ms + int((time.monotonic() - self._begun) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self._passed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def step(self, seconds: float) -> None:
        """Set the wall clock."""
        self._wall_ms += round(seconds * 1000)

    def set(self, instant: datetime) -> None:
        self.step((instant - self.now).total_seconds())

    def let_pass(self, seconds: float) -> None:
        """Let time pass on every clock."""
        self._passed += seconds
        self.step(seconds)
