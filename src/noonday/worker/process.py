"""Handlers in spawned processes, which are reused, and killed if they ignore their cancellation.

The keyring stays in the worker: a child receives decrypted bytes over a private socket. However the worker ends, the kernel kills
the child when the worker's ends of socket and lifeline close. `child_process.py` is this side of a child, `child.py` the other.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from noonday.crypto.envelope import context_of
from noonday.model.execution import Failure
from noonday.model.limits import PROGRESS_BYTES
from noonday.worker.child_process import ChildProcess
from noonday.worker.context import Cancelled, RetryLater, Snooze
from noonday.worker.function_ref import reference_to
from noonday.worker.process_messages import Call, HandlerEnded

if TYPE_CHECKING:
    from noonday.crypto.keyring import Keyring
    from noonday.worker.run import Run

ENTER_WITHIN_SEC = 45.0
"""Seconds that a process may take to start and to import a handler before it is killed. Less than the minute that passes between
the last start of a dispatch and its recovery as an orphan."""


class RemoteError(RetryLater):
    """The exception of a handler in its process, as the failure to report."""

    code = "remote-error"

    def __init__(self, failure: Failure, seconds: float = 0) -> None:
        super().__init__(f"{failure.type}: {failure.message}", seconds)
        self.failure = failure


class ProcessHost:
    """Runs handlers in at most `limit` processes, which are started when needed and reused.

    `resolver` names (`module:function`) the function from which a child gets the `(decode, encode)` of a handler's function:
    they are closures, and cannot be sent. A handler that continues for `cancel_grace_sec` after it was asked to end is killed,
    with every process it has started. `on_entered` is called on the loop when the handler of a run is entered. A process that
    has not entered its handler within `enter_within_sec` is killed.
    """

    def __init__(
        self,
        limit: int,
        resolver: str = "noonday.sdk.payload:codec_of",
        *,
        cancel_grace_sec: float = 10.0,
        enter_within_sec: float = ENTER_WITHIN_SEC,
        on_entered: Callable[["Run"], None] = lambda run: None,
    ) -> None:
        self._free = asyncio.Semaphore(limit)
        self._resolver = resolver
        self._grace_sec = cancel_grace_sec
        self._enter_within_sec = enter_within_sec
        self._on_entered = on_entered
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._closed = False

    async def run(self, run: "Run", keyring: "Keyring", result_limit: int) -> bytes | None:
        """Wait for a free process and run the handler in it. Returns its encoded result.

        `run.handler.encode` passes that result through from then on. Raises the handler's exception as Snooze, as Cancelled (in a
        run that was asked to end) or as RemoteError. Raises ProcessDied, and InvalidInput if the handler cannot be imported in
        another process. If the awaiting task is cancelled, the handler is asked to end. If it ends within the grace, that is its
        outcome; else it is killed, and CancelledError is raised once it is dead.
        """
        call = self._call_of(run, keyring, result_limit)
        async with self._free:
            child = self._take()
            try:
                ended = await child.perform(
                    call, run, self._grace_sec, partial(self._on_entered, run), self._enter_within_sec
                )
            finally:
                self._put_back(child)
        return _result_of(run, ended)

    def close(self) -> None:
        """Kill every child, idle or busy, and wait until it is dead. Runs that are awaited raise ProcessDied.

        Any thread may call this.
        """
        self._closed = True
        for child in list(self._children):
            child.end()

    def _call_of(self, run: "Run", keyring: "Keyring", result_limit: int) -> Call:
        assert run.handler is not None
        assert run.token is not None
        dispatch = run.dispatch
        context = context_of(dispatch.tenant, dispatch.job_id)
        return Call(
            reference_to(run.handler.call),
            self._resolver,
            msgspec.structs.replace(dispatch, payload=None, progress=None),
            run.token,
            None if dispatch.payload is None else keyring.open(dispatch.payload, context),
            None if dispatch.progress is None else keyring.open(dispatch.progress, context),
            result_limit,
            run.context._progress_limit if run.context is not None else PROGRESS_BYTES,
            run.context.logger.lowest_level if run.context is not None else 0,
        )

    def _take(self) -> ChildProcess:
        if self._closed:
            raise RuntimeError("the process host of this worker is closed")
        if self._idle:
            return self._idle.pop()
        child = ChildProcess(asyncio.get_running_loop(), self._forget)
        self._children.add(child)
        return child

    def _put_back(self, child: ChildProcess) -> None:
        if child.is_free():
            self._idle.append(child)
        else:
            child.kill()

    def _forget(self, child: ChildProcess) -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)


def _result_of(run: "Run", ended: HandlerEnded) -> bytes | None:
    assert run.handler is not None
    if ended.observed and run.context is not None:
        run.context._observed = True
    if ended.snooze_ms is not None:
        raise Snooze(ended.snooze_ms / 1000)
    if ended.raised_cancelled and run.stop_reason is not None:
        raise Cancelled(run.stop_reason)
    if ended.failure is not None:
        raise RemoteError(ended.failure, ended.wait_ms / 1000)
    run.handler = replace(run.handler, encode=_unchanged)
    return ended.result


def _unchanged(result: bytes) -> bytes:
    return result
