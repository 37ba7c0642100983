"""Rate limit and failure limit of a replay."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from noonday.model.view import ExecutionView
from noonday.ports.clock import Clock

BATCHES_A_SEC = 4
LARGEST_BATCH = 500
LOOK_SEC = 1.0
LOOKED_AT = 100
"""Maximum number of executions that one poll reads."""


class Pace:
    """Rate limit in items per second, measured from its creation."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def batch_size(self) -> int:
        return max(1, min(LARGEST_BATCH, int(self._rate / BATCHES_A_SEC)))

    async def keep(self, done: int) -> None:
        """Wait until the rate allows `done` items."""
        await self._clock.sleep(max(0.0, self._began + done / self._rate - self._clock.monotonic()))


class Brake:
    """Counts new executions with a failed attempt, even if another attempt follows, and limits their number."""

    def __init__(self, find: Callable[[str], Awaitable[ExecutionView | None]], most_failures: int) -> None:
        """`find` returns the execution that is watched under a name, or None if there is none yet."""
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
        """Number of executions without a known result."""
        return len(self._open)

    def watch(self, name: str) -> None:
        self._open.append(name)

    def is_due(self, now: float) -> bool:
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SEC
        return True

    async def look(self) -> None:
        """Read the oldest executions without a known result and count the failed ones."""
        names = [self._open.popleft() for _ in range(min(LOOKED_AT, len(self._open)))]
        for name, execution in zip(names, await asyncio.gather(*map(self._find, names)), strict=True):
            if execution is not None and has_failed(execution):
                self.failed += 1
            elif execution is None or execution.state in ("PENDING", "RUNNING"):
                self._open.append(name)


def has_failed(execution: ExecutionView) -> bool:
    """Return whether an attempt failed and the execution has not succeeded since.

    The error of a waiting execution does not count: it names what the execution waits for.
    """
    if execution.state in ("DEAD", "EXPIRED"):
        return True
    return execution.state != "SUCCEEDED" and any(attempt.error for attempt in execution.attempts)
