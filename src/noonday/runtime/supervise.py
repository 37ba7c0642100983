"""The loop around every service: runs its rounds, waits, backs off, and knows when it last completed a round."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from noonday.model.errors import NoondayError, StaleEpoch, StoreLost
from noonday.ports.clock import Clock

log = structlog.get_logger("noonday.supervise")
_LONGEST_BACKOFF_SEC = 5.0


class Service(Protocol):
    """A service that works in rounds."""

    async def run_once(self, now_ms: int) -> int:
        """Run one round. Returns how much it did; 0 means that there is nothing to do until a wake-up or the end of the wait."""
        ...


def should_log(failures: int) -> bool:
    """Return whether to log the latest of `failures` failures in a row: the first, the tenth, and each hundredth."""
    return failures in (1, 10) or failures % 100 == 0


@dataclass
class Loop:
    """A service and how often it runs.

    `wait` returns the seconds to wait after a round that did nothing. Setting `wake` ends the wait.
    """

    name: str
    service: Service
    clock: Clock
    wait: Callable[[], Awaitable[float]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stuck_after_sec: float = 30.0
    last_round_at: float = 0.0
    """Time when the last round was completed, by the monotonic clock."""
    failures: int = 0
    last_error: str | None = None

    async def run(self) -> None:
        self.last_round_at = self.clock.monotonic()
        while True:
            try:
                did = await self.service.run_once(self.clock.now_ms())
                self.last_round_at = self.clock.monotonic()
                # Inside the try block: `wait` may ask a server, too.
                wait_sec = 0.0 if did else await self.wait()
            except (StaleEpoch, StoreLost):
                raise
            except NoondayError as error:
                _reraise_cancellation()
                await self._back_off(error)
                continue
            self.failures, self.last_error = 0, None
            if not did:
                await self._wait_for_wake(wait_sec)
            else:
                await asyncio.sleep(0)

    def age_sec(self) -> float:
        return self.clock.monotonic() - self.last_round_at

    async def _back_off(self, error: NoondayError) -> None:
        self.failures += 1
        self.last_error = f"{error.code}: {error.detail}"
        if should_log(self.failures):
            log.warning("round failed", loop=self.name, error=error.detail, failures=self.failures)
        await self.clock.sleep(min(_LONGEST_BACKOFF_SEC, 0.05 * 2 ** min(self.failures, 10)))

    async def _wait_for_wake(self, seconds: float) -> None:
        if seconds > 0 and not self.wake.is_set():
            await self.clock.wait_for(self.wake, seconds)
        self.wake.clear()


def _reraise_cancellation() -> None:
    """Raise CancelledError if an error (a failed rollback, for example) has replaced a cancellation of this task."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def reasons_not_ready(loops: Iterable[Loop]) -> list[str]:
    """Return why a process is not ready: loops that are stuck, and loops that fail again and again."""
    stuck, failing = [], []
    for loop in loops:
        if loop.age_sec() > loop.stuck_after_sec:
            stuck.append(f"{loop.name} completed its last round {loop.age_sec():.1f} s ago")
        if loop.last_error and loop.failures > 3:
            failing.append(f"{loop.name}: {loop.last_error}")
    return stuck + failing


def every(seconds: float) -> Callable[[], Awaitable[float]]:
    """Return a `wait` for a Loop that always waits for the same time."""

    async def wait() -> float:
        return seconds

    return wait


class Tasks:
    """The tasks of a process. A task that ends with an error, or by a cancellation that was not requested, completes `failed`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completed with the error of a task that ended. The process should stop then."""

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._on_ended)
        self._tasks.append(task)

    async def end(self, *names: str) -> None:
        """Cancel the tasks with these names, and wait until they have ended. Without names, all tasks."""
        ending = [task for task in self._tasks if not names or task.get_name() in names]
        self._tasks = [task for task in self._tasks if task not in ending]
        await stop(ending)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
        elif task in self._tasks and not task.cancelling():
            # Nobody requested this: `end` removes its tasks from the list, and an event loop that closes cancels the task
            # itself.
            error = RuntimeError("a task or future that the loop waited for was cancelled")
        else:
            error = None
        if error is not None and not self.failed.done():
            log.error("loop ended", loop=task.get_name(), error=repr(error), exc_info=error)
            self.failed.set_exception(error)
            self.failed.exception()  # retrieved, so that asyncio does not log it: the reader of `failed` handles it


class StopDeadline:
    """The time that is left to stop.

    Steps that do not end in time are abandoned: the server that they wait for is unavailable, and a process that waited for it
    would be killed in the middle of another step.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def left_sec(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    async def step(self, name: str, action: Coroutine[Any, Any, Any]) -> bool:
        """Run one step. Returns whether it ended in time. Raises its error."""
        task = asyncio.create_task(action, name=name)
        waiting = asyncio.create_task(self._clock.sleep(max(MIN_STEP_SEC, self.left_sec())))
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            task.cancel()
        if not task.done():
            # For a moment only: a step that ignores its cancellation is abandoned, too.
            await asyncio.wait({task}, timeout=MIN_STEP_SEC)
        if task.done() and not task.cancelled():
            task.result()
            return True
        log.warning("stop step not finished in time", step=name)
        return False


MIN_STEP_SEC = 0.1
"""Least time for a step of a stop, even if no time is left: most steps need no more."""


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended. A task that lost its cancellation is cancelled again."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
