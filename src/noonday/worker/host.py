"""Hosts that run handlers: on an event loop, in threads, in spawned processes, and in remote workers."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from noonday.crypto.keyring import Keyring
from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.model.limits import PROGRESS_BYTES
from noonday.ports.clock import Clock
from noonday.runtime.tracing import Tracing
from noonday.worker.attempt_log import LogRetention
from noonday.worker.enqueueing import Enqueueing
from noonday.worker.failure_hooks import HookCaller
from noonday.worker.failures import FAILURES, FailureLog
from noonday.worker.process import ProcessHost
from noonday.worker.remote import RemoteRuns
from noonday.worker.run import INTERRUPTED, Run
from noonday.worker.threads import Threads

_SLICE_SEC = 0.002
"""Seconds that runs which never await may keep the loop before other tasks get a turn."""

KILL_AFTER = 0.8
"""Fraction of the cancel grace after which a process is killed. In the rest, its worker confirms the death and reports it."""

END_SEC = 0.5
"""Seconds that a thread with an event loop may take to end."""


class Host:
    """Runs handlers on one loop, within the concurrency of each pool.

    `start`, `stop` and `abandon` may be called from any thread. The host calls `on_ended` on its loop when a run has ended.
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
        failure_log: FailureLog | None = None,
        log_retention: LogRetention | None = None,
        hook_caller: HookCaller | None = None,
        remote: RemoteRuns | None = None,
        enqueueing: Enqueueing | None = None,
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
        self._remote = remote
        self._result_limit = result_limit
        self._progress_limit = progress_limit
        self._on_ended = on_ended
        self._failure_log = failure_log or FailureLog()
        self._log_retention = log_retention
        self._enqueueing = enqueueing
        self._hook_caller = hook_caller or HookCaller(loop)
        self.stepping: tuple[Run, float] | None = None
        """The run whose coroutine executes on the loop now, and since when. Other threads read it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[Run] = set()
        """Abandoned runs whose slots are given to other runs."""

    def start(self, runs: Sequence[Run]) -> None:
        """Start runs, each as soon as its pool has a free slot."""
        self._loop.call_soon_threadsafe(self._enqueue, runs)

    def stop(self, run: Run, reason: str) -> None:
        """Ask a run to end."""
        self._loop.call_soon_threadsafe(self._stop, run, reason)

    def abandon(self, run: Run) -> None:
        """Give the slot and the thread of a run that ignores its cancellation to another run."""
        self._loop.call_soon_threadsafe(self._abandon, run)

    def note_failure(self, run: Run) -> None:
        """Log the failure of a run that ended outside of this host, as the stand-in of an abandoned run does."""
        self._loop.call_soon_threadsafe(self._note_failure, run)

    def close(self) -> None:
        """Close threads and kill processes. Threads that run a handler continue to its end."""
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
            self._spawn(self._run_waiting(pool))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_waiting(self, pool: str) -> None:
        """Run the waiting runs of a pool one after the other in this task.

        A run that has to await keeps the task for itself, and another task continues with the others. So each handler has one
        task from its first step to its last, and handlers that never await share one.
        """
        waiting = self._waiting[pool]
        yield_at = self._clock.monotonic() + _SLICE_SEC
        while waiting and self._free[pool] > 0:
            run = waiting.popleft()
            if run.stop_requested is not None or run.is_too_old(self._clock.now_ms()):
                run.reject(run.stop_requested or INTERRUPTED)
                self._end(run)
                continue
            self._free[pool] -= 1
            suspended = self._begin(run)
            if suspended is not None:
                self._fill(pool)
                await self._await_end(run, suspended)
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
            return  # it has ended after all, or has not started and will be rejected
        self._abandoned.add(run)
        if run.mode is Mode.THREAD and self._threads is not None:
            self._threads.grow()
        if run.mode is Mode.REMOTE and self._remote is not None:
            self._remote.abandon(run)
        self._free[run.dispatch.pool] += 1
        self._fill(run.dispatch.pool)

    def _release(self, run: Run) -> None:
        if run not in self._abandoned:
            self._free[run.dispatch.pool] += 1
            return
        self._abandoned.discard(run)
        if run.mode is Mode.THREAD and self._threads is not None:
            self._threads.shrink()

    def _begin(self, run: Run) -> "Coroutine[Any, Any, Any] | _Suspended | None":
        """Enter the handler, or prepare to enter it in a thread or process. Returns what to await, or None if the run ended."""
        handler = run.handler
        assert handler is not None
        if handler.mode is Mode.ASYNC:
            self._enter(run)
        run.span = self._tracing.begin(run.dispatch)
        try:
            arguments = run.open_payload(self._keyring, self._progress_limit, self._log_retention, self._enqueueing)
        except Exception as error:
            self._enter(run)
            run.refuse(error)
            return None
        if handler.mode is Mode.THREAD:
            return self._in_thread(run, arguments)
        if handler.mode is Mode.PROCESS:
            return self._in_process(run)
        if handler.mode is Mode.REMOTE:
            return self._in_remote_worker(run, arguments[1])
        return self._first_step(run, handler.call, arguments)

    def _enter(self, run: Run) -> None:
        """Note that the handler is entered, from when its timeout counts. Called on the loop or in the handler's thread."""
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
        """Return a function that executes one step of a run in its own context, and shows it in `stepping` meanwhile."""

        def step(resume: Callable[..., Any], value: Any) -> Any:
            self.stepping = (run, self._clock.monotonic())
            try:
                return variables.run(resume, value)
            finally:
                self.stepping = None

        return step

    async def _await_end(self, run: Run, suspended: "Coroutine[Any, Any, Any] | _Suspended") -> None:
        run.task = asyncio.current_task()
        try:
            value = await suspended
        except BaseException as error:
            run.fail(error)
            if run.outcome is Outcome.FAILED and not run.started_ms:
                self._enter(
                    run
                )  # the handler was not reached, for example because its import failed: this uses up an attempt
        else:
            run.succeed(value, self._result_limit)
        finally:
            run.task = None

    async def _in_thread(self, run: Run, arguments: tuple[Any, ...]) -> Any:
        assert run.handler is not None
        if self._threads is None:
            raise RuntimeError("this worker has no threads for plain functions: set worker.threads to 1 or more")
        call = self._threads.call(self._enter_and_call, run, self._variables(run), arguments)
        # A thread cannot be cancelled: its end is awaited even if this task is cancelled.
        while True:
            try:
                return await asyncio.shield(call.future)
            except asyncio.CancelledError:
                if call.withdraw():
                    call.future.cancel()
                if call.future.done():
                    raise

    def _enter_and_call(self, run: Run, variables: contextvars.Context, arguments: tuple[Any, ...]) -> Any:
        """Enter and call the handler. Called in its thread."""
        assert run.handler is not None
        self._enter(run)
        return variables.run(run.handler.call, *arguments)

    async def _in_process(self, run: Run) -> Any:
        if self._processes is None:
            raise RuntimeError("this worker has no processes for process handlers: set worker.processes to 1 or more")
        return await self._processes.run(run, self._keyring, self._result_limit)

    async def _in_remote_worker(self, run: Run, payload: bytes) -> Any:
        if self._remote is None:
            raise RuntimeError("this worker has no remote workers")
        return await self._remote.run(run, payload)

    def _stop(self, run: Run, reason: str) -> None:
        """Cancel a run. One that has not started is rejected when its turn comes."""
        if run.stop_reason is None and run.ended_ms == 0:
            run.stop_reason = reason
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
        if run.context is not None:
            run.context._close_children("the attempt has ended")
        if run.span is not None:
            self._tracing.end(run.span, run.outcome, run.failure.type if run.failure else None)
        self._on_ended(run)
        if run.error is not None or run.failure is not None:
            self._note_failure(run)

    def _note_failure(self, run: Run) -> None:
        """Log a failure and call its hooks. This follows the report, which a slow log must not delay."""
        if not run.is_abandoned and run.outcome in FAILURES:
            self._failure_log.note(run)
            self._hook_caller.call(run)
        run.error = None  # its traceback keeps the frames of the handler alive


class _Suspended:
    """A coroutine after its first step. Awaiting it executes the remaining steps."""

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
    """A daemon thread that runs an event loop."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop], name: str) -> None:
        self.loop = new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def close(self) -> None:
        """Stop the loop and end the thread. A thread whose loop a handler blocks is left behind: it ends with the process."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=END_SEC)
        if not self._thread.is_alive():
            self.loop.close()
