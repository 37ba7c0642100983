"""The hosts of a worker: which of them runs a handler."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from noonday.crypto.keyring import Keyring
from noonday.model.handler import Handler, Mode
from noonday.ports.clock import Clock
from noonday.runtime.tracing import Tracing
from noonday.worker.attempt_log import LogRetention
from noonday.worker.enqueueing import Enqueueing
from noonday.worker.failure_hooks import HookCaller
from noonday.worker.failures import FailureLog
from noonday.worker.host import HandlerThread, Host
from noonday.worker.options import WorkerOptions
from noonday.worker.remote import RemoteRuns
from noonday.worker.run import Run


class Hosts:
    """A host for coroutines on the handlers' loop, and one for plain functions.

    Plain functions have a loop of their own: a coroutine that blocks the handlers' loop must not delay them. If coroutines run on
    the control loop, or if there are no plain functions, one host runs all.
    """

    def __init__(
        self,
        *,
        handlers: Mapping[tuple[str, str], Handler],
        options: WorkerOptions,
        clock: Clock,
        keyring: Keyring,
        tracing: Tracing,
        handlers_loop: asyncio.AbstractEventLoop,
        on_ended: Callable[[Run], None],
        remote: RemoteRuns | None = None,
        enqueueing: Enqueueing | None = None,
    ) -> None:
        """Must be called on the control loop. `on_ended` is called on the loop of a host."""
        self._hook_caller = HookCaller(handlers_loop, options.hook_timeout_sec)
        modes = {handler.mode for handler in handlers.values()}

        def host_on(loop: asyncio.AbstractEventLoop) -> Host:
            return Host(
                loop=loop,
                clock=clock,
                keyring=keyring,
                tracing=tracing,
                concurrency=dict(options.concurrency),
                threads=options.threads if Mode.THREAD in modes else 0,
                processes=options.processes if Mode.PROCESS in modes else 0,
                cancel_grace_sec=options.cancel_grace_sec,
                result_limit=options.result_limit,
                progress_limit=options.progress_limit,
                on_ended=on_ended,
                failure_log=FailureLog(options.failure_log_level),
                log_retention=LogRetention(options.log_limit, options.log_level, clock.now_ms),
                hook_caller=self._hook_caller,
                remote=remote,
                enqueueing=enqueueing,
            )

        one_host = handlers_loop is asyncio.get_running_loop() or modes <= {Mode.ASYNC}
        self._function_thread = None if one_host else HandlerThread(asyncio.new_event_loop, "noonday-carrier")
        self._coroutine_host = host_on(handlers_loop)
        self._function_host = host_on(self._function_thread.loop) if self._function_thread else self._coroutine_host
        self.mixed_pools = frozenset() if one_host else _mixed_pools(handlers)
        """Pools with handlers on both hosts."""

    @property
    def stepping(self) -> tuple[Run, float] | None:
        """The run whose coroutine executes on the handlers' loop now, and since when."""
        return self._coroutine_host.stepping

    def start(self, runs: Sequence[Run]) -> None:
        """Start runs, each as soon as its pool has a free slot."""
        if self._function_host is self._coroutine_host:
            self._coroutine_host.start(runs)
            return
        for host in (self._coroutine_host, self._function_host):
            if mine := [run for run in runs if self._host_of(run) is host]:
                host.start(mine)

    def stop(self, run: Run, reason: str) -> None:
        """Ask a run to end."""
        self._host_of(run).stop(run, reason)

    def abandon(self, run: Run) -> None:
        """Give the slot and the thread of a run that ignores its cancellation to another run."""
        self._host_of(run).abandon(run)

    def note_failure(self, run: Run) -> None:
        """Log the failure of a run that ended outside of its host."""
        self._host_of(run).note_failure(run)

    @property
    def pending_hooks(self) -> int:
        """Number of failed attempts whose hooks have not ended."""
        return self._hook_caller.pending

    def close(self) -> None:
        """Close threads and kill processes. Threads that run a handler continue to its end."""
        self._coroutine_host.close()
        self._hook_caller.close()
        if self._function_thread:
            self._function_host.close()
            self._function_thread.close()

    def _host_of(self, run: Run) -> Host:
        return self._coroutine_host if run.mode is Mode.ASYNC else self._function_host


def _mixed_pools(handlers: Mapping[tuple[str, str], Handler]) -> frozenset[str]:
    coroutines = {pool for (pool, _), handler in handlers.items() if handler.mode is Mode.ASYNC}
    functions = {pool for (pool, _), handler in handlers.items() if handler.mode is not Mode.ASYNC}
    return frozenset(coroutines & functions)
