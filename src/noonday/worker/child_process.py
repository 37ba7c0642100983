"""A process that runs handlers, as its worker sees it: its messages, its death, and its remains."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from io import FileIO
from multiprocessing.spawn import get_executable
from typing import TYPE_CHECKING
from weakref import WeakSet

from noonday.model.errors import NoondayError
from noonday.worker.context import Context
from noonday.worker.process_messages import (
    Call,
    Cancel,
    EnqueueAnswer,
    EnqueueMessage,
    FromChild,
    HandlerEnded,
    HandlerEntered,
    LogMessage,
    ToChild,
    decode_from_child,
    packed,
    pop_messages,
)

if TYPE_CHECKING:
    from noonday.worker.run import Run

_CHUNK = 65_536
"""Bytes that are read at a time."""
_REAP_SEC = 0.005
"""Seconds between two checks whether a killed process is dead."""


class ProcessDied(NoondayError):
    """The process of a handler ended before the handler did: it crashed, exited, or was killed from outside."""

    code = "process-died"


class ChildProcess:
    """A child process, and the worker's ends of its socket and lifeline. Only `kill` and `end` may be called off the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[["ChildProcess"], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._channel, self._lifeline, self._process = _spawn()
        self._reaping = threading.Lock()
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._context: Context | None = None
        self._on_entered: Callable[[], None] = _do_nothing
        self._enter_timer: asyncio.TimerHandle | None = None
        self._is_too_slow = False
        self._ended: asyncio.Future[HandlerEnded | None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._channel.fileno(), self._read)
        _connected.add(self)

    async def perform(
        self, call: Call, run: "Run", grace_sec: float, on_entered: Callable[[], None], enter_within_sec: float
    ) -> HandlerEnded:
        """Run a handler in the process. Raises ProcessDied and CancelledError."""
        self._context = run.context
        self._on_entered = on_entered
        self._ended = self._loop.create_future()
        self._enter_timer = self._loop.call_later(enter_within_sec, self._kill_slow)
        self._send(call)
        try:
            await asyncio.wait([self._ended])
        except asyncio.CancelledError:
            await self._cancel_then_kill(run.stop_reason or "CANCELLED", grace_sec)
        finally:
            self._enter_timer.cancel()
        ended = self._ended.result()
        if ended is None and self._is_too_slow:
            raise ProcessDied(
                f"the process had not entered its handler after {enter_within_sec:g} s and was killed: it took too long to "
                "start, or to import the handler's module"
            )
        if ended is None:
            raise ProcessDied(_death_message(self._process.returncode))
        return ended

    def is_free(self) -> bool:
        return self._ended.done() and self._ended.result() is not None and not self._gone.done()

    def kill(self) -> None:
        """Kill the process and its group."""
        with self._reaping:
            self._kill()

    def end(self) -> None:
        """Kill the process and its group, and wait until the process is dead."""
        with self._reaping:
            self._kill()
            self._process.wait()
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._on_disconnect)
        else:
            self._disconnect()

    def release(self) -> None:
        """Close the pipes in a fork of the worker, which must not keep the child alive when the worker is gone."""
        if self._channel.fileno() >= 0:
            os.close(self._channel.detach())
        self._lifeline.close()

    async def _cancel_then_kill(self, reason: str, grace_sec: float) -> None:
        if not self._ended.done():
            self._send(Cancel(reason))
            await asyncio.wait([self._ended], timeout=grace_sec)
        if not self._ended.done():
            self.kill()
            # The run ends only now: once reported as ended, it may be started again elsewhere.
            await asyncio.wait([self._gone])
            raise asyncio.CancelledError

    def _send(self, message: ToChild) -> None:
        if self._channel.fileno() >= 0:
            self._outgoing += packed(message)
            self._write()

    def _write(self) -> None:
        try:
            del self._outgoing[: self._channel.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # the process is dead; `_read` notices
        if self._outgoing:
            self._loop.add_writer(self._channel.fileno(), self._write)
        else:
            self._loop.remove_writer(self._channel.fileno())

    def _read(self) -> None:
        try:
            data = self._channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_disconnect()
            return
        self._incoming += data
        for body in pop_messages(self._incoming):
            self._receive(decode_from_child(body))

    def _kill_slow(self) -> None:
        self._is_too_slow = True
        self.kill()

    def _receive(self, message: FromChild) -> None:
        if isinstance(message, HandlerEntered):
            if self._enter_timer is not None:
                self._enter_timer.cancel()
            self._on_entered()
        elif isinstance(message, HandlerEnded):
            if not self._ended.done():
                self._ended.set_result(message)
        elif isinstance(message, LogMessage):
            if self._context is not None:
                self._context.logger.relay(message.level, message.text)
        elif isinstance(message, EnqueueMessage):
            if self._context is not None:
                self._send(_enqueue(self._context, message))
        elif self._context is not None:
            if message.progress is not None:
                self._context._reported_progress = message.progress
            self._context._has_new_heartbeat = True

    def _on_disconnect(self) -> None:
        """Clean up after the child has closed its end: disconnect, kill its remains, and reap it."""
        self._disconnect()
        self.kill()
        self._reap()

    def _disconnect(self) -> None:
        fd = self._channel.fileno()
        if fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
                self._loop.remove_writer(fd)
            self._channel.close()
            self._lifeline.close()

    def _kill(self) -> None:
        # Until it is reaped, no other process has its ids; polling reaps. A dead child may have left processes in its group.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def _reap(self) -> None:
        with self._reaping:
            alive = self._process.poll() is None
        if alive:
            self._loop.call_later(_REAP_SEC, self._reap)
        elif not self._gone.done():
            self._gone.set_result(None)
            self._on_gone(self)
            if not self._ended.done():
                self._ended.set_result(None)


def _enqueue(context: Context, message: EnqueueMessage) -> EnqueueAnswer:
    """Enqueue a job for the handler of a child, with the answer that `ctx.enqueue` gives or the error that it raises."""
    try:
        children = context._open_children()
        child = children.enqueue_from_process(message.handler, message.module, message.payload, message.fields)
    except NoondayError as error:
        return EnqueueAnswer(error=error.code, detail=error.detail)
    return EnqueueAnswer(child.job_id, child.name)


def _do_nothing() -> None:
    pass


_connected: WeakSet[ChildProcess] = WeakSet()


def _release_children() -> None:
    for child in list(_connected):
        child.release()


os.register_at_fork(after_in_child=_release_children)

_BOOT = """\
import sys
sys.path[:] = sys.argv[3:]
from noonday.worker.child import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""


def _spawn() -> tuple[socket.socket, FileIO, "subprocess.Popen[bytes]"]:
    channel, child_channel = socket.socketpair()
    channel.setblocking(False)
    child_lifeline, lifeline = os.pipe()
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ends = (child_channel.fileno(), child_lifeline)
    command = [get_executable(), *flags, "-c", _BOOT, *map(str, ends), *map(str, sys.path)]
    try:
        # Its own group: it is killed with all processes it started, and a terminal's interrupt reaches the worker alone.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=ends, process_group=0)
    except BaseException:
        channel.close()
        os.close(lifeline)
        raise
    finally:
        child_channel.close()
        os.close(child_lifeline)
    return channel, FileIO(lifeline, "w"), process


def _death_message(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code} before its handler had ended"
    names = {each.value: each.name for each in signal.Signals}
    hint = ": by a person, or because memory ran out" if -code == signal.SIGKILL else ""
    return f"the process was killed by {names.get(-code, f'signal {-code}')}{hint}"
