"""Threads of a simulated process: a handler in a thread cannot be cancelled, and always runs to its end."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from noonday.worker.worker import Worker


class SimThreads:
    """In place of `noonday.worker.threads.Threads`. Each function is a coroutine in a task that is never cancelled."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._waiting: deque[SimCall] = deque()

    def call(self, function: Callable[..., Any], *arguments: Any) -> "SimCall":
        call = SimCall(function, arguments)
        self._waiting.append(call)
        self._fill()
        return call

    def grow(self) -> None:
        self._limit += 1
        self._fill()

    def shrink(self) -> None:
        self._limit -= 1

    def close(self) -> None:
        """Close the threads. Running functions go on to their end."""

    def _fill(self) -> None:
        while self._waiting and self._running < self._limit:
            call = self._waiting.popleft()
            if not call.is_taken:
                call.is_taken = True
                self._running += 1
                call.task = asyncio.create_task(self._perform(call))

    async def _perform(self, call: "SimCall") -> None:
        try:
            result = await call.function(*call.arguments)
        except Exception as error:
            call.future.set_exception(error)
        else:
            call.future.set_result(result)
        self._running -= 1
        self._fill()


class SimCall:
    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_taken = False
        self.task: asyncio.Task[None] | None = None

    def withdraw(self) -> bool:
        """Return whether the function had not begun, and will not."""
        taken, self.is_taken = self.is_taken, True
        return not taken


def use_simulated_threads(worker: Worker) -> None:
    host = worker._hosts._coroutine_host
    if host._threads is not None:
        host._threads = SimThreads(worker._options.threads)  # type: ignore[assignment]
