"""Threads for handlers that are plain functions.

They are daemon threads: a function that never ends must not keep a stopping process alive.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Threads:
    """A pool of at most `limit` threads, which are started when needed and reused. For use on one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._under_way = 0
        self._waiting: SimpleQueue[ThreadCall | None] = SimpleQueue()

    def call(self, function: Callable[..., Any], *arguments: Any) -> "ThreadCall":
        """Call a function in a thread, once one is free."""
        call = ThreadCall(function, arguments)
        call.future.add_done_callback(self._note_end)
        self._under_way += 1
        if self._count < min(self._under_way, self._limit):
            self._count += 1
            threading.Thread(target=self._work, name=f"noonday-handler-{self._count}", daemon=True).start()
        self._waiting.put(call)
        return call

    def grow(self) -> None:
        """Allow one more thread, in place of one that may never become free again."""
        self._limit += 1

    def shrink(self) -> None:
        """Allow one thread less, because a replaced thread is free again."""
        self._limit -= 1
        if self._count > self._limit:
            self._count -= 1
            self._waiting.put(None)

    def close(self) -> None:
        """End each thread after the call that it is in."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _note_end(self, future: "asyncio.Future[Any]") -> None:
        self._under_way -= 1

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            call.perform()


class ThreadCall:
    """A function call that waits for a thread or runs in one."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self._taken = threading.Lock()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def withdraw(self) -> bool:
        """Prevent the call if it has not begun. Returns whether it was prevented."""
        return self._taken.acquire(blocking=False)

    def perform(self) -> None:
        """Call the function, unless the call was withdrawn. Called in the thread."""
        if not self._taken.acquire(blocking=False):
            return
        value, error = None, None
        try:
            value = self._function(*self._arguments)
        except BaseException as raised:
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:
            return  # the loop was closed while the function ran, so nothing awaits the result

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        elif isinstance(error, StopIteration):
            self.future.set_exception(
                RuntimeError(f"the handler raised {error!r}")
            )  # a future cannot carry StopIteration
        else:
            self.future.set_exception(error)
