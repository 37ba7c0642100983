"""The thread and event loop of an engine inside an application."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")

CANCEL_SEC = 1.0
"""Time that calls have to end when the thread of an engine ends, in seconds."""


class EngineLoop:
    """The event loop of an engine. Any other loop may call it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    async def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the engine's loop and await its result on the caller's loop."""
        if asyncio.get_running_loop() is self.loop:
            return await make()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self.loop))


class EngineThread(EngineLoop):
    """A thread with its own event loop, so that an application that blocks its loop does not delay the engine."""

    def __init__(self) -> None:
        super().__init__(new_event_loop())
        self._thread = threading.Thread(target=self._run, name="noonday-engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        if left := asyncio.all_tasks(self.loop):
            # Calls of other threads that are not answered: their callers wait.
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_SEC))


@asynccontextmanager
async def engine_thread() -> AsyncIterator[EngineThread]:
    """Run a thread for an engine. The thread ends with the block, even if the end of the block is cancelled."""
    thread = EngineThread()
    try:
        yield thread
    finally:
        await to_the_end(asyncio.to_thread(thread.close))


@asynccontextmanager
async def opened(
    thread: EngineThread, open_it: Callable[[], Coroutine[Any, Any, T]], close: Callable[[T], Coroutine[Any, Any, None]]
) -> AsyncIterator[T]:
    """Open a resource on the engine's loop, and close it when the block ends. A cancellation interrupts neither step."""
    opening = asyncio.ensure_future(thread.call(open_it))
    try:
        await to_the_end(opening)
    except asyncio.CancelledError:
        if not opening.cancelled() and opening.exception() is None:
            await to_the_end(thread.call(lambda: close(opening.result())))
        raise
    try:
        yield opening.result()
    finally:
        await to_the_end(thread.call(lambda: close(opening.result())))


async def to_the_end(awaitable: Awaitable[T]) -> T:
    """Await something to its end. A cancellation that arrives meanwhile is raised afterwards, in place of the result."""
    ending = asyncio.ensure_future(awaitable)
    cancelled = False
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return ending.result()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: of uvloop if it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
