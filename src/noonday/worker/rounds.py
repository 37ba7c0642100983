"""Rounds of taking and starting: whether there are more, and how many are under way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from noonday.ports.clock import Clock

ROUND_WAIT_SEC = 1.0
"""Seconds that a stopping worker waits for a round of taking or starting to end."""
CLOSING_POLL_SEC = 0.01
"""Seconds between two checks of a stopping worker whether something has ended."""


class Rounds:
    """Lets rounds of taking and starting begin until the worker stops taking."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way = 0
        self.taking = True
        """True if the worker takes and starts runs."""
        self.start_wake = asyncio.Event()
        """Set when runs may start, or when none will start any more."""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a round as under way."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def stop(self) -> None:
        """Take and start nothing more, once the rounds under way have ended.

        A claim whose answer is never read would keep its dispatch from other workers until it lapses.
        """
        self.taking = False
        self.start_wake.set()
        deadline = self._clock.monotonic() + ROUND_WAIT_SEC
        while self._under_way and self._clock.monotonic() < deadline:
            await self._clock.sleep(CLOSING_POLL_SEC)
