"""Where handlers run: a loop of their own, threads, and spawned processes."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from noonday.crypto.keyring import Keyring
from noonday.model.execution import Outcome
from noonday.model.limits import PROGRESS_BYTES
from noonday.ports.clock import Clock
from noonday.runtime.tracing import Tracing
from noonday.worker.handler import Mode
from noonday.worker.process import ProcessHost
from noonday.worker.run import INTERRUPTED, Run, failure_of
from noonday.worker.threads import Threads

_SLICE_SEC = 0.002
"""How long runs that never wait may keep the loop before others get a turn."""


KILL_AFTER = 0.8
"""A process that ignores its end is killed after this part of the grace: in the rest its worker sees it dead, and reports it."""

END_SEC = 0.5
"""How long a thread with a loop may take to end."""


class Host:
    """Starts runs on its loop, at most so many of a pool at once, and says when they have ended.

    `start`, `stop` and `abandon` may be called from another thread. `on_ended` is called on the loop.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        keyring: Keyring,
        tracing: Tracing,
        concurrency: dict[str, int],
        threads: int,
        processes: int,
        cancel_grace_sec: float,
        result_limit: int,
        progress_limit: int = PROGRESS_BYTES,
        on_ended: Callable[[Run], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._keyring = keyring
        self._tracing = tracing
        self._free = dict(concurrency)
        self._waiting: dict[str, deque[Run]] = {pool: deque() for pool in concurrency}
        self._threads = Threads(threads) if threads else None
        self._processes = (
            ProcessHost(processes, cancel_grace_sec=KILL_AFTER * cancel_grace_sec, on_entered=self._enter)
            if processes
            else None
        )
        self._result_limit = result_limit
        self._progress_limit = progress_limit
        self._on_ended = on_ended
        self.stepping: tuple[Run, float] | None = None
        """Whose code runs on the loop at this moment, and since when. Read from other threads."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[Run] = set()
        """Those whose slots others may have."""

    def start(self, runs: Sequence[Run]) -> None:
        self._loop.call_soon_threadsafe(self._enqueue, runs)

    def stop(self, run: Run, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._stop, run, reason)

    def abandon(self, run: Run) -> None:
        """Let another run have the slot, and the thread, of one that ignores its end."""
        self._loop.call_soon_threadsafe(self._abandon, run)

    def close(self) -> None:
        if self._threads:
            self._threads.close()
        if self._processes:
            self._processes.close()

    def _enqueue(self, runs: Sequence[Run]) -> None:
        pools: dict[str, None] = {}
        for run in runs:
            pool = run.dispatch.pool
            self._waiting[pool].append(run)
            pools[pool] = None
        for pool in pools:
            self._fill(pool)

    def _fill(self, pool: str) -> None:
        if self._waiting[pool] and self._free[pool] > 0:
            self._spawn(self._carry(pool))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry(self, pool: str) -> None:
        """Run what waits, one after the other, in this task. A run that has to wait keeps the task for itself, and
        another one carries on: so each handler has one task from its first step to its last, and those that never wait
        share one."""
        waiting = self._waiting[pool]
        yield_at = self._clock.monotonic() + _SLICE_SEC
        while waiting and self._free[pool] > 0:
            run = waiting.popleft()
            if run.asked is not None or run.is_too_old(self._clock.now_ms()):
                run.turn_away(run.asked or INTERRUPTED)
                self._end(run)
                continue
            self._free[pool] -= 1
            waits = self._begin(run)
            if waits is not None:
                self._fill(pool)
                await self._see_through(run, waits)
                self._release(run)
                self._end(run)
                self._fill(pool)
                return
            self._free[pool] += 1
            self._end(run)
            if self._clock.monotonic() >= yield_at:
                await asyncio.sleep(0)
                yield_at = self._clock.monotonic() + _SLICE_SEC

    def _abandon(self, run: Run) -> None:
        if run.ended_ms or not run.started_ms:
            return  # it has ended after all, or is turned away when its turn comes
        self._abandoned.add(run)
        if run.mode is Mode.THREAD and self._threads is not None:
            self._threads.replace_one()
        self._free[run.dispatch.pool] += 1
        self._fill(run.dispatch.pool)

    def _release(self, run: Run) -> None:
        if run not in self._abandoned:
            self._free[run.dispatch.pool] += 1
            return
        self._abandoned.discard(run)
        if run.mode is Mode.THREAD and self._threads is not None:
            self._threads.take_back_one()

    def _begin(self, run: Run) -> "Coroutine[Any, Any, Any] | _Suspended | None":
        """Enter the handler, or send it to where it is entered. Answers what is left to wait for, or None if the run has
        ended."""
        handler = run.handler
        assert handler is not None
        if handler.mode is Mode.ASYNC:
            self._enter(run)
        run.span = self._tracing.begin(run.dispatch)
        try:
            arguments = run.open_payload(self._keyring, self._progress_limit)
        except Exception as error:
            self._enter(run)
            run.outcome, run.failure = Outcome.FAILED, failure_of(error, retryable=False)
            return None
        if handler.mode is Mode.THREAD:
            return self._in_thread(run, arguments)
        if handler.mode is Mode.PROCESS:
            return self._in_process(run)
        return self._first_step(run, handler.call, arguments)

    def _enter(self, run: Run) -> None:
        """Start the clock of a run. Called on the loop or in the thread of the handler."""
        run.enter(self._clock.now_ms(), self._clock.monotonic())

    def _first_step(self, run: Run, call: Callable[..., Any], arguments: tuple[Any, ...]) -> "_Suspended | None":
        variables = self._variables(run)
        self.stepping = (run, run.begun_at)
        try:
            coroutine = call(*arguments)
            awaited = variables.run(coroutine.send, None)
        except StopIteration as ended:
            run.succeed(ended.value, self._result_limit)
            return None
        except BaseException as error:
            run.fail(error)
            return None
        finally:
            self.stepping = None
        return _Suspended(coroutine, awaited, self._stepper(run, variables))

    def _stepper(self, run: Run, variables: contextvars.Context) -> Callable[..., Any]:
        """Takes one step of a run in its own context, and lets it be known meanwhile whose step it is."""

        def step(resume: Callable[..., Any], value: Any) -> Any:
            self.stepping = (run, self._clock.monotonic())
            try:
                return variables.run(resume, value)
            finally:
                self.stepping = None

        return step

    async def _see_through(self, run: Run, waits: "Coroutine[Any, Any, Any] | _Suspended") -> None:
        run.task = asyncio.current_task()
        try:
            value = await waits
        except BaseException as error:
            run.fail(error)
            if run.outcome is Outcome.FAILED and not run.started_ms:
                self._enter(run)  # the way to the handler failed, its import for example: an attempt like any other
        else:
            run.succeed(value, self._result_limit)
        finally:
            run.task = None

    async def _in_thread(self, run: Run, arguments: tuple[Any, ...]) -> Any:
        assert run.handler is not None
        if self._threads is None:
            raise RuntimeError("this worker has no threads for plain functions: raise worker.threads")
        call = self._threads.call(self._enter_and_call, run, self._variables(run), arguments)
        # A thread cannot be cancelled: its end is awaited, whatever was asked of it.
        while True:
            try:
                return await asyncio.shield(call.future)
            except asyncio.CancelledError:
                if call.withdraw():
                    call.future.cancel()
                if call.future.done():
                    raise

    def _enter_and_call(self, run: Run, variables: contextvars.Context, arguments: tuple[Any, ...]) -> Any:
        """In the thread of the handler."""
        assert run.handler is not None
        self._enter(run)
        return variables.run(run.handler.call, *arguments)

    async def _in_process(self, run: Run) -> Any:
        if self._processes is None:
            raise RuntimeError("this worker runs no processes: raise worker.processes")
        return await self._processes.run(run, self._keyring, self._result_limit)

    def _stop(self, run: Run, reason: str) -> None:
        """Ask a run to end. One that has not begun is turned away when its turn comes."""
        if run.stop is None and run.ended_ms == 0:
            run.stop = reason
            if run.context is not None:
                run.context._cancel_reason = reason
            if run.task is not None:
                run.task.cancel()

    def _variables(self, run: Run) -> contextvars.Context:
        variables = contextvars.copy_context()
        if run.span is not None:
            variables.run(self._tracing.activate, run.span)
        return variables

    def _end(self, run: Run) -> None:
        run.ended_ms = self._clock.now_ms()
        if run.span is not None:
            self._tracing.end(run.span, run.outcome, run.failure.type if run.failure else None)
        self._on_ended(run)


class _Suspended:
    """A coroutine that has taken its first step, awaited to its end step by step."""

    __slots__ = ("_awaited", "_coroutine", "_step")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], awaited: Any, step: Callable[..., Any]) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self._step = step

    def __await__(self) -> Generator[Any, Any, Any]:
        step, throw, awaited = self._coroutine.send, self._coroutine.throw, self._awaited
        while True:
            try:
                value = yield awaited
            except BaseException as error:
                resume: tuple[Callable[..., Any], Any] = (throw, error)
            else:
                resume = (step, value)
            try:
                awaited = self._step(*resume)
            except StopIteration as ended:
                return ended.value


class HandlerThread:
    """A thread with an event loop in it."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop], name: str) -> None:
        self.loop = new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def close(self) -> None:
        """End the thread. One whose loop is blocked by a handler is left behind: it ends with the process."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=END_SEC)
        if not self._thread.is_alive():
            self.loop.close()
