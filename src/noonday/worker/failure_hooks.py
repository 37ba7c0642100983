"""Calls the functions that an application wants called after failed attempts.

They run on the loop of the coroutine handlers, after the attempt is handed to the reporter: the attempt is reported and its
slot is free, whatever they do. Plain functions run in threads of their own. Each call is bounded in time, and their number is
bounded.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from noonday.model.retry import DEFAULT_POLICY
from noonday.worker.context import Context, FailedAttempt, log_fields
from noonday.worker.handler_log import logger_of
from noonday.worker.run import HEARTBEAT, INTERRUPTED, TIMED_OUT, Run
from noonday.worker.threads import Threads

HOOK_TIMEOUT_SEC = 10.0
MAX_CALLS = 100
"""Maximum number of failed attempts whose functions are being called. Those of further ones are not called."""
THREADS = 4
"""Number of threads for functions that are not `async def`. One that never ends keeps its thread."""
_NO_CANCEL = (None, TIMED_OUT, HEARTBEAT, INTERRUPTED)


def is_last_attempt(run: Run) -> bool:
    """Return whether a failed run was the last attempt, by the policy of its job as it was dispatched, its handler or its pool.

    A run that was asked to end by a cancel is not: its execution is CANCELLED.
    """
    dispatch = run.dispatch
    if run.stop_requested not in _NO_CANCEL:
        return False
    if run.failure is not None and not run.failure.retryable:
        return True
    of_handler = run.handler.retry_policy if run.handler else None
    most = dispatch.max_attempts
    if most is None:
        most = of_handler.max_attempts if of_handler else dispatch.pool_max_attempts
    return dispatch.attempt >= (most or DEFAULT_POLICY.max_attempts)


class HookCaller:
    """Calls hooks on one loop. `call` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_sec: float = HOOK_TIMEOUT_SEC) -> None:
        self._loop = loop
        self._timeout_sec = timeout_sec
        self._threads = Threads(THREADS)
        self._tasks: set[asyncio.Task[None]] = set()
        self.pending = 0
        """Number of failed attempts whose functions are being called."""

    def call(self, run: Run) -> None:
        """Call the hooks for a run that has failed, soon."""
        calls = _hooks_of(run)
        if not calls or run.context is None or run.failure is None:
            return
        failed = FailedAttempt(run.outcome.name, run.failure, run.error, is_last_attempt(run))
        if self.pending >= MAX_CALLS:
            _log(run.context, f"hooks not called: those of {MAX_CALLS} failed attempts have not ended yet")
            return
        self.pending += 1
        self._loop.call_soon_threadsafe(self._start, calls, run.context, failed)

    def close(self) -> None:
        """End each thread after the function that it is in."""
        self._threads.close()

    def _start(self, calls: list[Callable[..., Any]], context: Context, failed: FailedAttempt) -> None:
        task = self._loop.create_task(self._call_all(calls, context, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call_all(self, calls: list[Callable[..., Any]], context: Context, failed: FailedAttempt) -> None:
        try:
            for function in calls:
                await self._call(function, context, failed)
        finally:
            self.pending -= 1

    async def _call(self, function: Callable[..., Any], context: Context, failed: FailedAttempt) -> None:
        name = getattr(function, "__qualname__", repr(function))
        try:
            async with asyncio.timeout(self._timeout_sec):
                if inspect.iscoroutinefunction(function):
                    await function(context, failed)
                else:
                    await self._threads.call(function, context, failed).future
        except TimeoutError:
            _log(context, f"hook {name} did not end within {self._timeout_sec:g} s")
        except Exception as error:
            _log(context, f"hook {name} raised {type(error).__name__}", error)


def _hooks_of(run: Run) -> list[Callable[..., Any]]:
    """Return the functions to call, those of `on_failure` first."""
    if run.handler is None or run.handler.hooks is None:
        return []
    hooks = run.handler.hooks.with_including()
    calls = [function for each in hooks for function in each.on_failure]
    if is_last_attempt(run):
        calls += [function for each in hooks for function in each.on_dead]
    return calls


def _log(context: Context, text: str, error: BaseException | None = None) -> None:
    logger_of(context.handler).error("%s", text, exc_info=error, extra=log_fields(context._dispatch))
