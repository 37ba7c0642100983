"""A thread for what an API request may cost in CPU time, so that the engine's event loop goes on meanwhile."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from noonday.model.errors import Busy
from noonday.ports.aside import Aside, MayGoOn

T = TypeVar("T")
BUDGET_SEC = 0.05
MOST_WAITING = 64


class ThreadAside(Aside):
    """Runs one computation at a time, each for at most `budget_sec` of CPU time; so many may wait for their turn."""

    def __init__(self, budget_sec: float = BUDGET_SEC, most_waiting: int = MOST_WAITING) -> None:
        self._budget_sec = budget_sec
        self._most_waiting = most_waiting
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "noonday-aside")

    async def run(self, work: Callable[[MayGoOn], T]) -> T:
        if self._waiting >= self._most_waiting:
            raise Busy(f"{self._waiting} other requests for fire times wait; try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._within_budget, work)
        finally:
            self._waiting -= 1

    def _within_budget(self, work: Callable[[MayGoOn], T]) -> T:
        ends_at = time.thread_time() + self._budget_sec
        return work(lambda: time.thread_time() < ends_at)
