"""The process that runs handlers for a worker, one after the other, and ends with the worker.

Handlers run in the main thread. A second thread receives messages: it cancels the handler, and kills the process once the worker
is gone. Where possible the kernel does the latter, because no thread can act while a handler holds the interpreter lock.
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
from datetime import timedelta
from functools import cache, partial
from io import FileIO
from queue import SimpleQueue
from types import FrameType
from typing import Any

from noonday.model.errors import Conflict
from noonday.model.execution import Outcome
from noonday.model.handler import Handler, Mode
from noonday.worker.context import Cancelled, Context, _Done, log_fields
from noonday.worker.enqueueing import EnqueuedChild, raised_again
from noonday.worker.function_ref import FunctionRef
from noonday.worker.handler_log import MAX_RECORD_CHARS, HandlerLogger, logger_of
from noonday.worker.lifeline import end_with
from noonday.worker.process_messages import (
    HEAD_BYTES,
    Call,
    EnqueueAnswer,
    EnqueueMessage,
    FromChild,
    HandlerEnded,
    HandlerEntered,
    LogMessage,
    ProgressMessage,
    ToChild,
    decode_from_worker,
    packed,
)
from noonday.worker.run import Run, clean, decode_json


def main(channel_fd: int, lifeline_fd: int) -> None:
    """Run the handlers that the worker sends over the channel until it closes."""
    del sys.argv[1:]
    lifeline = FileIO(lifeline_fd)
    if not end_with(lifeline.fileno(), -os.getpgrp()):
        _kill_group()
    channel = _Channel(channel_fd)
    _ignore_group_signals(channel, lifeline)
    _flush_every_line()
    calls: SimpleQueue[tuple[Call, _ProcessContext]] = SimpleQueue()
    threading.Thread(target=_receive_messages, args=(channel, calls), name="noonday-listen", daemon=True).start()
    while True:
        call, context = calls.get()
        ended = _perform(call, context, partial(channel.send, HandlerEntered()))
        context.stop_sending()
        _flush()
        channel.send(ended)


class _Channel:
    """The child's end of the socket to the worker."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._socket.setblocking(True)  # the worker's program may have set a default timeout
        self._sending = threading.Lock()

    def send(self, message: FromChild) -> None:
        with self._sending:
            self._socket.sendall(packed(message))

    def messages(self) -> Iterator[ToChild]:
        stream = self._socket.makefile("rb")
        while len(head := stream.read(HEAD_BYTES)) == HEAD_BYTES:
            yield decode_from_worker(stream.read(int.from_bytes(head, "big")))

    def release(self) -> None:
        """Close the socket without shutting the connection down."""
        if self._socket.fileno() >= 0:
            os.close(self._socket.detach())


class _ProcessContext(Context):
    """A context that sends its heartbeats and log records to the worker."""

    __slots__ = ("_answers", "_asking", "_converter", "_has_ended", "_log_level", "_send")

    def __init__(self, call: Call, send: Callable[[FromChild], None]) -> None:
        progress = None if call.progress is None else decode_json(call.progress)
        super().__init__(call.dispatch, call.token, progress, call.progress_limit)
        self._log_level = call.log_level
        self._converter = call.converter
        self._send = send
        self._asking = threading.Lock()
        self._answers: SimpleQueue[EnqueueAnswer] = SimpleQueue()
        self._has_ended = False

    def heartbeat(self, progress: Any = None) -> _Done:
        done = super().heartbeat(progress)
        self._send(ProgressMessage(None if progress is None else self._reported_progress))
        return done

    def enqueue(self, handler: str | Callable[..., Any], payload: Any = None, **arguments: Any) -> EnqueuedChild:
        """Let the worker enqueue the job, and return its answer or raise its error."""
        name, module = (handler, None) if isinstance(handler, str) else (handler.__qualname__, _module_of(handler))
        plain = _import(*self._converter.split(":"))(payload)
        fields = {name: _as_seconds(value) for name, value in arguments.items()}
        with self._asking:
            if self._has_ended:
                raise Conflict("ctx.enqueue cannot add a job: the attempt has ended")
            self._send(EnqueueMessage(name, module, plain, fields))
            answer = self._answers.get()
        if answer.error is not None:
            raise raised_again(answer.error, answer.detail)
        return EnqueuedChild(answer.job_id, answer.name)

    def note_answer(self, answer: EnqueueAnswer) -> None:
        self._answers.put(answer)

    def stop_sending(self) -> None:
        """Send nothing more. A thread that the handler left behind must not send for the next handler."""
        with self._asking:
            self._has_ended = True
            self._send = lambda message: None

    def _new_logger(self) -> HandlerLogger:
        return HandlerLogger(logger_of(self.handler), log_fields(self._dispatch), self._forward)

    def _forward(self, level: int, text: str) -> None:
        if level >= self._log_level:
            self._send(LogMessage(level, clean(text, MAX_RECORD_CHARS)))


def _receive_messages(channel: _Channel, calls: "SimpleQueue[tuple[Call, _ProcessContext]]") -> None:
    context: _ProcessContext | None = None
    try:
        for message in channel.messages():
            if isinstance(message, Call):
                context = _ProcessContext(message, channel.send)
                calls.put((message, context))
            elif context is None:
                continue
            elif isinstance(message, EnqueueAnswer):
                context.note_answer(message)
            else:
                context._cancel_reason = message.reason
    finally:
        _kill_group()


def _perform(call: Call, context: Context, on_entered: Callable[[], None]) -> HandlerEnded:
    run = Run(call.dispatch, call.token, None)
    raised_cancelled = False
    try:
        run.handler = _handler_of(call)
        arguments = _arguments(call, run.handler, context)
        on_entered()
        value = contextvars.copy_context().run(run.handler.call, *arguments)
    except BaseException as error:
        raised_cancelled = isinstance(error, asyncio.CancelledError | Cancelled)
        run.fail(error)
    else:
        run.succeed(value, call.result_limit)
    snooze_ms = run.snooze_ms if run.outcome is Outcome.SNOOZED else None
    wait_ms = run.snooze_ms if run.outcome is Outcome.FAILED else 0
    return HandlerEnded(context._observed, run.result, run.failure, snooze_ms, wait_ms, raised_cancelled)


def _handler_of(call: Call) -> Handler:
    function, decode, encode = _resolve(call.function, call.resolver)
    return Handler(call.dispatch.handler, call.dispatch.pool, function, Mode.PROCESS, decode, encode)


def _arguments(call: Call, handler: Handler, context: Context) -> tuple[Any, ...]:
    if handler.decode is None:
        return (context,)
    return (context, handler.decode(b"null" if call.payload is None else call.payload))


@cache
def _resolve(reference: FunctionRef, resolver: str) -> tuple[Any, Any, Any]:
    if reference.argv is not None:
        sys.argv[:] = reference.argv
    if reference.script is not None:
        _load_script(reference.script)
    function = _import(reference.module, reference.name)
    return (function, *_import(*resolver.split(":"))(function))


def _module_of(function: Callable[..., Any]) -> str:
    """Return the module of a function as the worker knows it. The program of the worker has another name here."""
    return "__main__" if function.__module__ == "__mp_main__" else function.__module__


def _as_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _import(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _load_script(script: str) -> None:
    from multiprocessing.spawn import prepare

    try:
        prepare({"init_main_from_path": script})
    except BaseException as error:
        error.add_note(
            f"{script} is also imported by the processes that run its handlers: move the code that starts the program "
            'under `if __name__ == "__main__":`'
        )
        raise


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _ignore_group_signals(channel: _Channel, lifeline: FileIO) -> None:
    """Ignore signals to the whole process group: the worker decides when this process ends.

    Forks that a handler makes get default signal handling, and no ends of channel and lifeline.
    """
    for each in _IGNORED_SIGNALS:
        signal.signal(each, _ignore)

    def in_a_fork() -> None:
        channel.release()
        lifeline.close()
        for each in _IGNORED_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        _unblock()

    # Signals are blocked during a fork, so that a new fork does not ignore a signal sent to it.
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=in_a_fork)


_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED_SIGNALS)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED_SIGNALS)


def _ignore(number: int, frame: FrameType | None) -> None:
    # A function and not SIG_IGN, which programs that a handler starts would inherit.
    pass


def _flush_every_line() -> None:
    # A process that is killed flushes nothing.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
