"""What keeps a replay from doing harm: it is no faster than told, and stops when too much of it fails."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from noonday.model.view import ExecutionView
from noonday.ports.clock import Clock

BATCHES_A_SEC = 4
LARGEST_BATCH = 500
LOOK_SEC = 1.0
LOOKED_AT = 100
"""How many of the new ones are looked at in a round of the brake."""


class Pace:
    """So many a second, from the moment it is made."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def batch_size(self) -> int:
        return max(1, min(LARGEST_BATCH, int(self._rate / BATCHES_A_SEC)))

    async def keep(self, done: int) -> None:
        """Wait until so many may have been done."""
        await self._clock.sleep(max(0.0, self._began + done / self._rate - self._clock.monotonic()))


class Brake:
    """Looks at what became of the new ones: one that has failed an attempt counts, whether or not it is tried again."""

    def __init__(self, find: Callable[[str], Awaitable[ExecutionView | None]], most_failures: int) -> None:
        """`find`: the execution of what is watched under a name, if there is one already."""
        self._find = find
        self._most = most_failures
        self._open: deque[str] = deque()
        self._next_look = 0.0
        self.failed = 0

    @property
    def is_on(self) -> bool:
        return self.failed > self._most

    @property
    def open(self) -> int:
        """Of how many it is not known yet what became of them."""
        return len(self._open)

    def watch(self, name: str) -> None:
        self._open.append(name)

    def is_due(self, now: float) -> bool:
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SEC
        return True

    async def look(self) -> None:
        """The oldest that are not known to have ended, at most so many at a time."""
        names = [self._open.popleft() for _ in range(min(LOOKED_AT, len(self._open)))]
        for name, execution in zip(names, await asyncio.gather(*map(self._find, names)), strict=True):
            if execution is not None and has_failed(execution):
                self.failed += 1
            elif execution is None or execution.state in ("PENDING", "RUNNING"):
                self._open.append(name)


def has_failed(execution: ExecutionView) -> bool:
    """An attempt of it has, and it has not succeeded since. What only waits may have an error too: what it waits for."""
    if execution.state in ("DEAD", "EXPIRED"):
        return True
    return execution.state != "SUCCEEDED" and any(attempt.error for attempt in execution.attempts)
