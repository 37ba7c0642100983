"""A thread for CPU-heavy computations of API requests, so that they do not block the event loop."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from noonday.model.errors import Busy
from noonday.ports.offload import MayContinue, Offload

T = TypeVar("T")
BUDGET_SEC = 0.05
"""CPU time per computation."""
MAX_WAITING = 64
"""Maximum number of computations that run or wait."""


class ThreadOffload(Offload):
    """Runs one computation at a time in a thread, for at most `budget_sec` of CPU time. At most `max_waiting` run or wait."""

    def __init__(self, budget_sec: float = BUDGET_SEC, max_waiting: int = MAX_WAITING) -> None:
        self._budget_sec = budget_sec
        self._max_waiting = max_waiting
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "noonday-offload")

    async def run(self, work: Callable[[MayContinue], T]) -> T:
        if self._waiting >= self._max_waiting:
            raise Busy(f"{self._waiting} requests for fire times are waiting, the maximum; retry later")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._within_budget, work)
        finally:
            self._waiting -= 1

    def _within_budget(self, work: Callable[[MayContinue], T]) -> T:
        ends_at = time.thread_time() + self._budget_sec
        return work(lambda: time.thread_time() < ends_at)
