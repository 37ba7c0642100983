"""A process that runs handlers for a worker, one after the other, and ends with it.

Handlers run in the main thread. Another one listens: to cancel, and to die once the worker is gone. Where the kernel can
do the latter it does, since a thread waits in vain while a handler holds the interpreter lock.
"""

import asyncio
import contextlib
import contextvars
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from io import FileIO
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from noonday.model.execution import Outcome
from noonday.worker.context import Cancelled, Context, _Done
from noonday.worker.handler import Handler, Mode
from noonday.worker.lifeline import end_with
from noonday.worker.process import HEAD_BYTES, Call, Cancel, Ended, Entered, Place, Said, packed
from noonday.worker.run import Run, decode_json


def main(channel_fd: int, lifeline_fd: int) -> None:
    """Run what comes over the channel until it closes."""
    del sys.argv[1:]
    lifeline = FileIO(lifeline_fd)
    if not end_with(lifeline.fileno(), -os.getpgrp()):
        _die()
    channel = _Channel(channel_fd)
    _keep_to_ourselves(channel, lifeline)
    _print_by_line()
    calls: SimpleQueue[tuple[Call, _ProcessContext]] = SimpleQueue()
    threading.Thread(target=_listen, args=(channel, calls), name="noonday-listen", daemon=True).start()
    while True:
        call, context = calls.get()
        ended = _perform(call, context, partial(channel.send, Entered()))
        context.fall_silent()
        _flush()
        channel.send(ended)


class _Channel:
    """Our end of the pipe to the worker."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._socket.setblocking(True)  # a default timeout of the worker's program would have said otherwise
        self._sending = threading.Lock()

    def send(self, message: Entered | Said | Ended) -> None:
        with self._sending:
            self._socket.sendall(packed(message))

    def messages(self) -> Iterator[Call | Cancel]:
        stream = self._socket.makefile("rb")
        while len(head := stream.read(HEAD_BYTES)) == HEAD_BYTES:
            yield _decode(stream.read(int.from_bytes(head, "big")))

    def release(self) -> None:
        if self._socket.fileno() >= 0:
            os.close(self._socket.detach())


_decode = msgspec.msgpack.Decoder(Call | Cancel).decode


class _ProcessContext(Context):
    """A context whose heartbeats go to the worker."""

    __slots__ = ("_tell",)

    def __init__(self, call: Call, tell: Callable[[Said], None]) -> None:
        progress = None if call.progress is None else decode_json(call.progress)
        super().__init__(call.dispatch, call.token, progress, progress_limit=call.progress_limit)
        self._tell = tell

    def heartbeat(self, progress: Any = None) -> _Done:
        done = super().heartbeat(progress)
        self._tell(Said(None if progress is None else self._said))
        return done

    def fall_silent(self) -> None:
        """A thread that the handler left behind must not beat for the next one."""
        self._tell = lambda said: None


def _listen(channel: _Channel, calls: "SimpleQueue[tuple[Call, _ProcessContext]]") -> None:
    context: _ProcessContext | None = None
    try:
        for message in channel.messages():
            if isinstance(message, Call):
                context = _ProcessContext(message, channel.send)
                calls.put((message, context))
            elif context is not None:
                context._cancel_reason = message.reason
    finally:
        _die()


def _perform(call: Call, context: Context, tell_entered: Callable[[], None]) -> Ended:
    run = Run(call.dispatch, call.token, None)
    gave_up = False
    try:
        run.handler = _handler_of(call)
        arguments = _arguments(call, run.handler, context)
        tell_entered()
        value = contextvars.copy_context().run(run.handler.call, *arguments)
    except BaseException as error:
        gave_up = isinstance(error, asyncio.CancelledError | Cancelled)
        run.fail(error)
    else:
        run.succeed(value, call.result_limit)
    snooze_ms = run.snooze_ms if run.outcome is Outcome.SNOOZED else None
    wait_ms = run.snooze_ms if run.outcome is Outcome.FAILED else 0
    return Ended(context._observed, run.result, run.failure, snooze_ms, wait_ms, gave_up)


def _handler_of(call: Call) -> Handler:
    function, decode, encode = _resolved(call.place, call.resolver)
    return Handler(call.dispatch.handler, call.dispatch.pool, function, Mode.PROCESS, decode, encode)


def _arguments(call: Call, handler: Handler, context: Context) -> tuple[Any, ...]:
    if handler.decode is None:
        return (context,)
    return (context, handler.decode(b"null" if call.payload is None else call.payload))


@cache
def _resolved(place: Place, resolver: str) -> tuple[Any, Any, Any]:
    if place.argv is not None:
        sys.argv[:] = place.argv
    if place.script is not None:
        _load_script(place.script)
    function = _named(place.module, place.name)
    return (function, *_named(*resolver.split(":"))(function))


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _load_script(script: str) -> None:
    from multiprocessing.spawn import prepare

    try:
        prepare({"init_main_from_path": script})
    except BaseException as error:
        error.add_note(
            f"{script} is also loaded by the processes that run its handlers: what it does when it is started has to "
            'stand under `if __name__ == "__main__":`'
        )
        raise


def _die() -> None:
    os.killpg(0, signal.SIGKILL)


def _keep_to_ourselves(channel: _Channel, lifeline: FileIO) -> None:
    """When to end is the worker's to say, not that of whoever signals all of its processes; none of this is for the
    forks of a handler."""
    for each in _NOT_FOR_US:
        signal.signal(each, _ignore)

    def in_a_fork() -> None:
        channel.release()
        lifeline.close()
        for each in _NOT_FOR_US:
            signal.signal(each, signal.SIG_DFL)
        _unblock()

    # Blocked, so that a signal to a fork that has just begun is not ignored as one to us.
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=in_a_fork)


_NOT_FOR_US = (signal.SIGINT, signal.SIGTERM)


def _block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_US)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_US)


def _ignore(number: int, frame: FrameType | None) -> None:
    # Not SIG_IGN, which programs that a handler starts would inherit.
    pass


def _print_by_line() -> None:
    # Whoever is killed flushes nothing.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
