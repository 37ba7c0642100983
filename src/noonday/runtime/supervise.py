"""The loop around every service: turns its crank, waits, backs off, and knows how long ago it last came round."""

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
    async def run_once(self, now_ms: int) -> int:
        """One round. Answers how much it did; 0 means that there is nothing to do until woken or until the wait is over."""
        ...


def worth_saying(failures: int) -> bool:
    """Of the same failure over and over, a few are said."""
    return failures in (1, 10) or failures % 100 == 0


@dataclass
class Loop:
    """A service and its rhythm.

    `wait` says how long to wait after a round that did nothing; a `wake` cuts the wait short.
    """

    name: str
    service: Service
    clock: Clock
    wait: Callable[[], Awaitable[float]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stuck_after_sec: float = 30.0
    came_round: float = 0.0
    """When it last completed a round, by the monotonic clock."""
    failures: int = 0
    last_error: str | None = None

    async def run(self) -> None:
        self.came_round = self.clock.monotonic()
        while True:
            try:
                did = await self.service.run_once(self.clock.now_ms())
                self.came_round = self.clock.monotonic()
                # How long to wait may be a question to a server, too.
                rest_sec = 0.0 if did else await self.wait()
            except (StaleEpoch, StoreLost):
                raise
            except NoondayError as error:
                _heed_cancellation()
                await self._back_off(error)
                continue
            self.failures, self.last_error = 0, None
            if not did:
                await self._rest(rest_sec)
            else:
                await asyncio.sleep(0)

    def age_sec(self) -> float:
        return self.clock.monotonic() - self.came_round

    async def _back_off(self, error: NoondayError) -> None:
        self.failures += 1
        self.last_error = f"{error.code}: {error.detail}"
        if worth_saying(self.failures):
            log.warning("round failed", loop=self.name, error=error.detail, failures=self.failures)
        await self.clock.sleep(min(_LONGEST_BACKOFF_SEC, 0.05 * 2 ** min(self.failures, 10)))

    async def _rest(self, seconds: float) -> None:
        if seconds > 0 and not self.wake.is_set():
            await self.clock.wait_for(self.wake, seconds)
        self.wake.clear()


def _heed_cancellation() -> None:
    """An error on the way out (a rollback that failed, say) may have taken the place of a cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def reasons_not_ready(loops: Iterable[Loop]) -> list[str]:
    """Loops that are stuck, and loops that fail again and again."""
    stuck, failing = [], []
    for loop in loops:
        if loop.age_sec() > loop.stuck_after_sec:
            stuck.append(f"{loop.name} last came round {loop.age_sec():.1f} s ago")
        if loop.last_error and loop.failures > 3:
            failing.append(f"{loop.name}: {loop.last_error}")
    return stuck + failing


def every(seconds: float) -> Callable[[], Awaitable[float]]:
    async def wait() -> float:
        return seconds

    return wait


class Tasks:
    """The tasks of a process. One that ends by an error, or because something in it was cancelled, completes `failed`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completed with the error of a task that ended; everything else should stop then."""

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        task.add_done_callback(self._on_ended)
        self._tasks.append(task)

    async def end(self, *names: str) -> None:
        """Cancel the tasks with these names and wait for them; without a name, all."""
        ending = [task for task in self._tasks if not names or task.get_name() in names]
        self._tasks = [task for task in self._tasks if task not in ending]
        await stop(ending)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
        elif task in self._tasks and not task.cancelling():
            # Nobody asked it to end: `end` takes its tasks off the list, and an event loop that closes cancels the task itself.
            error = RuntimeError("something the loop waited for was cancelled")
        else:
            error = None
        if error is not None and not self.failed.done():
            log.error("loop ended", loop=task.get_name(), error=repr(error), exc_info=error)
            self.failed.set_exception(error)
            self.failed.exception()  # noted: whoever looks at `failed` decides what to do


class StopDeadline:
    """The time that is left to stop. Steps that do not end in time are left behind: whatever they wait for is away, and a process
    that goes on without it would be killed in the middle of something else."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def left_sec(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    async def step(self, name: str, doing: Coroutine[Any, Any, Any]) -> bool:
        """Take one step. Returns whether it was done in time; raises what it raised."""
        task = asyncio.create_task(doing, name=name)
        waiting = asyncio.create_task(self._clock.sleep(max(LEAST_STEP_SEC, self.left_sec())))
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            task.cancel()
        if not task.done():
            # For a moment only: a step that does not heed its cancellation is left behind, too.
            await asyncio.wait({task}, timeout=LEAST_STEP_SEC)
        if task.done() and not task.cancelled():
            task.result()
            return True
        log.warning("stop step not finished in time", step=name)
        return False


LEAST_STEP_SEC = 0.1
"""How long a step of a stop may take although the time is over: most need no more."""


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended. One in which the cancellation was lost is told again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1.0)
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
