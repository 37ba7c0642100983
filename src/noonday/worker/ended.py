"""Runs that have ended, on their way from the hosts to the reporter."""

import asyncio
from collections import deque
from collections.abc import Iterator

from noonday.model.execution import Outcome
from noonday.ports.clock import Clock
from noonday.worker.run import Run


class EndedRuns:
    """Runs that have ended and whose reports are not in the outbox yet. For the control loop, except `add_from_host`."""

    def __init__(self, clock: Clock) -> None:
        """Must be called on the control loop."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._runs: deque[Run] = deque()
        self.wake = asyncio.Event()
        """Set when there is something to report."""

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)  # not a generator: hosts add runs meanwhile, and unpacking a deque is atomic

    def add(self, run: Run) -> None:
        self._runs.append(run)
        self.wake.set()

    def add_from_host(self, run: Run) -> None:
        """Add a run from the loop of its host."""
        self._runs.append(run)
        if len(self._runs) == 1 or not self.wake.is_set():
            self._loop.call_soon_threadsafe(self.wake.set)

    def reject(self, run: Run, reason: str) -> None:
        """End a run that must not start."""
        run.reject(reason)
        self.end_unstarted(run, run.outcome)

    def end_unstarted(self, run: Run, outcome: Outcome) -> None:
        """End a run that was not started."""
        run.outcome = outcome
        run.ended_ms = self._clock.now_ms()
        self.add(run)

    def take(self, limit: int) -> list[Run]:
        """Remove and return the oldest runs, at most `limit`."""
        return [self._runs.popleft() for _ in range(min(len(self._runs), limit))]
