"""Threads for handlers that are plain functions.

They are daemons: a function that never ends, whatever it is told, must not keep alive a process that was told to stop.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Threads:
    """At most `limit` threads, started when needed and used again. To be used on one loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._under_way = 0
        self._waiting: SimpleQueue[Call | None] = SimpleQueue()

    def call(self, function: Callable[..., Any], *arguments: Any) -> "Call":
        call = Call(function, arguments)
        call.future.add_done_callback(self._note_end)
        self._under_way += 1
        if self._count < min(self._under_way, self._limit):
            self._count += 1
            threading.Thread(target=self._work, name=f"noonday-handler-{self._count}", daemon=True).start()
        self._waiting.put(call)
        return call

    def replace_one(self) -> None:
        """Allow one thread more: one of them may never come back."""
        self._limit += 1

    def take_back_one(self) -> None:
        """One that was replaced has come back: there is one too many."""
        self._limit -= 1
        if self._count > self._limit:
            self._count -= 1
            self._waiting.put(None)

    def close(self) -> None:
        """No thread takes another call. Those that are under way go on to their end."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _note_end(self, future: "asyncio.Future[Any]") -> None:
        self._under_way -= 1

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            call.perform()


class Call:
    """A function on its way into a thread, or in it."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self._taken = threading.Lock()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def withdraw(self) -> bool:
        """Whether it had not begun, and will not."""
        return self._taken.acquire(blocking=False)

    def perform(self) -> None:
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
            return  # the loop was closed while the function ran: nobody waits for it any more

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        elif isinstance(error, StopIteration):
            self.future.set_exception(RuntimeError(f"the handler raised {error!r}"))  # which a future cannot carry
        else:
            self.future.set_exception(error)
