"""Handlers in spawned processes, which are reused, and killed if they ignore their cancellation.

The keyring stays in the worker: a child receives decrypted bytes over a private socket. However the worker ends, the kernel kills
the child when the worker's ends of socket and lifeline close. `child.py` is the other side.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import FileIO
from multiprocessing.spawn import get_executable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from noonday.crypto.envelope import context_of
from noonday.model.errors import InvalidInput, NoondayError
from noonday.model.execution import Failure
from noonday.model.limits import PROGRESS_BYTES
from noonday.model.message import Dispatch, Token
from noonday.worker.context import Cancelled, Context, RetryLater, Snooze

if TYPE_CHECKING:
    from noonday.crypto.keyring import Keyring
    from noonday.worker.run import Run

HEAD_BYTES = 4
"""Length of the size that precedes each message."""
_CHUNK = 65_536
_REAP_SEC = 0.005
"""Seconds between two checks whether a killed process is dead."""
ENTER_WITHIN_SEC = 45.0
"""Seconds that a process may take to start and to import a handler before it is killed. Less than the minute that passes between
the last start of a dispatch and its recovery as an orphan."""


class RemoteError(RetryLater):
    """The exception of a handler in its process, as the failure to report."""

    code = "remote-error"

    def __init__(self, failure: Failure, seconds: float = 0) -> None:
        super().__init__(f"{failure.type}: {failure.message}", seconds)
        self.failure = failure


class ProcessDied(NoondayError):
    """The process of a handler ended before the handler did: it crashed, exited, or was killed from outside."""

    code = "process-died"


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
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
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

    def _call_of(self, run: "Run", keyring: "Keyring", result_limit: int) -> "Call":
        assert run.handler is not None
        assert run.token is not None
        dispatch = run.dispatch
        context = context_of(dispatch.tenant, dispatch.job_id)
        return Call(
            _reference_to(run.handler.call),
            self._resolver,
            msgspec.structs.replace(dispatch, payload=None, progress=None),
            run.token,
            None if dispatch.payload is None else keyring.open(dispatch.payload, context),
            None if dispatch.progress is None else keyring.open(dispatch.progress, context),
            result_limit,
            run.context._progress_limit if run.context is not None else PROGRESS_BYTES,
        )

    def _take(self) -> "_Child":
        if self._closed:
            raise RuntimeError("the process host of this worker is closed")
        if self._idle:
            return self._idle.pop()
        child = _Child(asyncio.get_running_loop(), self._forget)
        self._children.add(child)
        return child

    def _put_back(self, child: "_Child") -> None:
        if child.is_free():
            self._idle.append(child)
        else:
            child.kill()

    def _forget(self, child: "_Child") -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)


class FunctionRef(msgspec.Struct, frozen=True, array_like=True):
    """The import path of a function, for another process."""

    module: str
    name: str
    argv: tuple[str, ...] | None = None
    """The arguments of the program, if the function is in its main module."""
    script: str | None = None
    """The file of the program, if its main module has no importable name."""


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """To a child: run a handler."""

    function: FunctionRef
    resolver: str
    dispatch: Dispatch
    token: Token
    payload: bytes | None
    progress: bytes | None
    result_limit: int
    progress_limit: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """To a child: ask the running handler to end."""

    reason: str


class Entered(msgspec.Struct, frozen=True, array_like=True, tag="entered"):
    """From a child: the handler is imported, its payload is decoded, and it is called now."""


class ProgressMessage(msgspec.Struct, frozen=True, array_like=True, tag="said"):
    """From a child: a heartbeat, with or without progress."""

    progress: bytes | None


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """From a child: the handler has ended."""

    observed: bool
    """Whether the handler has read its cancellation."""
    result: bytes | None = None
    failure: Failure | None = None
    snooze_ms: int | None = None
    wait_ms: int = 0
    """Minimum delay of the next attempt."""
    raised_cancelled: bool = False
    """Whether the handler raised CancelledError or Cancelled."""


def packed(message: Call | Cancel | Entered | ProgressMessage | Ended) -> bytes:
    """Return a message as bytes, with its size in front."""
    body = _encode(message)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entered | ProgressMessage | Ended).decode


class _Child:
    """A child process, and the worker's ends of its socket and lifeline. Only `kill` and `end` may be called off the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[["_Child"], None]) -> None:
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
        self._ended: asyncio.Future[Ended | None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._channel.fileno(), self._read)
        _connected.add(self)

    async def perform(
        self, call: Call, run: "Run", grace_sec: float, on_entered: Callable[[], None], enter_within_sec: float
    ) -> Ended:
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

    def _send(self, message: Call | Cancel) -> None:
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
        for body in _pop_messages(self._incoming):
            self._receive(_decode(body))

    def _kill_slow(self) -> None:
        self._is_too_slow = True
        self.kill()

    def _receive(self, message: Entered | ProgressMessage | Ended) -> None:
        if isinstance(message, Entered):
            if self._enter_timer is not None:
                self._enter_timer.cancel()
            self._on_entered()
        elif isinstance(message, Ended):
            if not self._ended.done():
                self._ended.set_result(message)
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


def _do_nothing() -> None:
    pass


_connected: WeakSet[_Child] = WeakSet()


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


def _pop_messages(buffer: bytearray) -> Iterator[bytes]:
    """Remove the complete messages from the head of a buffer and yield them."""
    start = 0
    while len(buffer) >= start + HEAD_BYTES:
        body = start + HEAD_BYTES
        end = body + int.from_bytes(buffer[start:body], "big")
        if len(buffer) < end:
            break
        yield bytes(buffer[body:end])
        start = end
    del buffer[:start]


def _reference_to(function: Callable[..., Any]) -> FunctionRef:
    module, name = function.__module__, function.__qualname__
    if getattr(sys.modules.get(module), name, None) is not function:
        raise InvalidInput(
            f"{module}.{name} cannot run in a process of its own: another process would not find it there; expected a "
            "function at the top level of its module, not wrapped by a decorator above the one that registers it"
        )
    return FunctionRef(module, name) if module != "__main__" else _reference_in_program(name)


def _reference_in_program(name: str) -> FunctionRef:
    main = sys.modules["__main__"]
    argv = tuple(sys.argv)
    if main.__spec__ is not None and main.__spec__.name != "__main__":
        return FunctionRef(main.__spec__.name, name, argv)
    script = getattr(main, "__file__", None) or ""
    if not os.path.isfile(script):
        raise InvalidInput(
            f"{name} cannot run in a process of its own: its program is not a file; move the function to a module"
        )
    return FunctionRef("__main__", name, argv, script)


def _death_message(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code} before its handler had ended"
    names = {each.value: each.name for each in signal.Signals}
    hint = ": by a person, or because memory ran out" if -code == signal.SIGKILL else ""
    return f"the process was killed by {names.get(-code, f'signal {-code}')}{hint}"


def _result_of(run: "Run", ended: Ended) -> bytes | None:
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
