"""Handlers in processes of their own: spawned, kept warm, and killed if they do not listen.

The keyring stays here: a child is sent plain bytes over a private pipe. It lives no longer than our end of the pipes to
it does, whatever ended us; `child.py` is the other end.
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
_CHUNK = 65_536
_REAP_SEC = 0.005
ENTER_WITHIN_SEC = 45.0
"""How long a process may take to start and to import a handler before it is killed. Less than the minute by which orphan
recovery waits longer than workers start what was handed out."""


class RemoteError(RetryLater):
    """What a handler raised in its process, as the failure to report."""

    code = "remote-error"

    def __init__(self, failure: Failure, seconds: float = 0) -> None:
        super().__init__(f"{failure.type}: {failure.message}", seconds)
        self.failure = failure


class ProcessDied(NoondayError):
    """The process of a handler ended before the handler did: it crashed, left, or was killed by somebody else."""

    code = "process-died"


class ProcessHost:
    """Runs handlers in at most `limit` processes, which are started when needed and used again.

    `resolver` names (`module:function`) what a child asks for a handler's `(decode, encode)`, given its function: they
    are closures, and cannot be sent. A handler that goes on for `cancel_grace_sec` after it was asked to end is killed,
    with every process it has started. `on_entered` is called on the loop when the handler of a run is entered; a process
    that does not come so far within `enter_within_sec` is killed.
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
        """Wait for a free process and run the handler in it. Answers its result, encoded: `run.handler.encode` passes it
        through from then on.

        Raises what the handler raised as Snooze, Cancelled (of a run that was asked to end) or RemoteError; ProcessDied;
        InvalidInput if the handler cannot be imported elsewhere. If the awaiting task is cancelled, the handler is asked
        to end. What it does within the grace is its outcome; after that it is killed, and CancelledError raised once it
        is dead.
        """
        call = self._call_of(run, keyring, result_limit)
        async with self._free:
            child = self._take()
            try:
                ended = await child.perform(
                    call, run, self._grace_sec, partial(self._on_entered, run), self._enter_within_sec
                )
            finally:
                self._give_back(child)
        return _conclude(run, ended)

    def close(self) -> None:
        """Kill every child, idle or busy, and see it dead. Any thread may call this; a run still awaited raises
        ProcessDied."""
        self._closed = True
        for child in list(self._children):
            child.end()

    def _call_of(self, run: "Run", keyring: "Keyring", result_limit: int) -> "Call":
        assert run.handler is not None
        assert run.token is not None
        dispatch = run.dispatch
        context = context_of(dispatch.tenant, dispatch.job_id)
        return Call(
            _place_of(run.handler.call),
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
            raise RuntimeError("this worker's processes are closed")
        if self._idle:
            return self._idle.pop()
        child = _Child(asyncio.get_running_loop(), self._forget)
        self._children.add(child)
        return child

    def _give_back(self, child: "_Child") -> None:
        if child.is_free():
            self._idle.append(child)
        else:
            child.kill()

    def _forget(self, child: "_Child") -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where another process finds a function."""

    module: str
    name: str
    argv: tuple[str, ...] | None = None
    """The arguments of the program, if the function is part of it."""
    script: str | None = None
    """The file of the program, if the module has no other name than `__main__`."""


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """To a child: run this."""

    place: Place
    resolver: str
    dispatch: Dispatch
    token: Token
    payload: bytes | None
    progress: bytes | None
    result_limit: int
    progress_limit: int


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """To a child: the handler that runs should end."""

    reason: str


class Entered(msgspec.Struct, frozen=True, array_like=True, tag="entered"):
    """From a child: the handler is imported, its payload is read, and it is called now."""


class Said(msgspec.Struct, frozen=True, array_like=True, tag="said"):
    """From a child: a heartbeat, with progress or without."""

    progress: bytes | None


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """From a child: the handler has ended."""

    observed: bool
    """Whether it has looked at its cancellation."""
    result: bytes | None = None
    failure: Failure | None = None
    snooze_ms: int | None = None
    wait_ms: int = 0
    """How long the next attempt waits at least."""
    gave_up: bool = False
    """Whether it raised because it was cancelled."""


def packed(message: Call | Cancel | Entered | Said | Ended) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entered | Said | Ended).decode


class _Child:
    """One process, and our ends of the pipes to it. To be used on the loop, but for `kill` and `end`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[["_Child"], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._channel, self._lifeline, self._process = _spawn()
        self._reaping = threading.Lock()
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._context: Context | None = None
        self._on_entered: Callable[[], None] = _do_nothing
        self._entering: asyncio.TimerHandle | None = None
        self._is_too_slow = False
        self._ended: asyncio.Future[Ended | None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._channel.fileno(), self._read)
        _connected.add(self)

    async def perform(
        self, call: Call, run: "Run", grace_sec: float, on_entered: Callable[[], None], enter_within_sec: float
    ) -> Ended:
        self._context = run.context
        self._on_entered = on_entered
        self._ended = self._loop.create_future()
        self._entering = self._loop.call_later(enter_within_sec, self._give_up)
        self._send(call)
        try:
            await asyncio.wait([self._ended])
        except asyncio.CancelledError:
            await self._wind_up(run.stop or "CANCELLED", grace_sec)
        finally:
            self._entering.cancel()
        ended = self._ended.result()
        if ended is None and self._is_too_slow:
            raise ProcessDied(
                f"the process had not entered its handler after {enter_within_sec:g} s and was killed: it took too long to "
                "start, or to import the handler's module"
            )
        if ended is None:
            raise ProcessDied(_death(self._process.returncode))
        return ended

    def is_free(self) -> bool:
        return self._ended.done() and self._ended.result() is not None and not self._gone.done()

    def kill(self) -> None:
        with self._reaping:
            self._kill()

    def end(self) -> None:
        with self._reaping:
            self._kill()
            self._process.wait()
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._part)
        else:
            self._disconnect()

    def release(self) -> None:
        """For a fork of this process: it must not keep the child alive when we are gone."""
        if self._channel.fileno() >= 0:
            os.close(self._channel.detach())
        self._lifeline.close()

    async def _wind_up(self, reason: str, grace_sec: float) -> None:
        if not self._ended.done():
            self._send(Cancel(reason))
            await asyncio.wait([self._ended], timeout=grace_sec)
        if not self._ended.done():
            self.kill()
            # Not before: a run that is reported as ended may be started again elsewhere.
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
            self._outgoing.clear()  # it is dead: reading says so
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
            self._part()
            return
        self._incoming += data
        for body in _taken(self._incoming):
            self._hear(_decode(body))

    def _give_up(self) -> None:
        self._is_too_slow = True
        self.kill()

    def _hear(self, message: Entered | Said | Ended) -> None:
        if isinstance(message, Entered):
            if self._entering is not None:
                self._entering.cancel()
            self._on_entered()
        elif isinstance(message, Ended):
            if not self._ended.done():
                self._ended.set_result(message)
        elif self._context is not None:
            if message.progress is not None:
                self._context._said = message.progress
            self._context._said_new = True

    def _part(self) -> None:
        """The other end is closed. Whatever is left of the child is of no use."""
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
        # Its id and its group's are its own until it is reaped, and polling reaps. A dead child may have left a group.
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


def _let_go() -> None:
    for child in list(_connected):
        child.release()


os.register_at_fork(after_in_child=_let_go)

_BOOT = """\
import sys
sys.path[:] = sys.argv[3:]
from noonday.worker.child import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""


def _spawn() -> tuple[socket.socket, FileIO, "subprocess.Popen[bytes]"]:
    channel, theirs = socket.socketpair()
    channel.setblocking(False)
    watched, lifeline = os.pipe()
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ends = (theirs.fileno(), watched)
    command = [get_executable(), *flags, "-c", _BOOT, *map(str, ends), *map(str, sys.path)]
    try:
        # A group of its own: it is killed with all it started, and the interrupt of a terminal is for us alone.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=ends, process_group=0)
    except BaseException:
        channel.close()
        os.close(lifeline)
        raise
    finally:
        theirs.close()
        os.close(watched)
    return channel, FileIO(lifeline, "w"), process


def _taken(buffer: bytearray) -> Iterator[bytes]:
    """The complete messages at the head of the buffer, taken out of it."""
    start = 0
    while len(buffer) >= start + HEAD_BYTES:
        body = start + HEAD_BYTES
        end = body + int.from_bytes(buffer[start:body], "big")
        if len(buffer) < end:
            break
        yield bytes(buffer[body:end])
        start = end
    del buffer[:start]


def _place_of(function: Callable[..., Any]) -> Place:
    module, name = function.__module__, function.__qualname__
    if getattr(sys.modules.get(module), name, None) is not function:
        raise InvalidInput(
            f"{module}.{name} cannot run in a process of its own: another process would not find it there; expected a "
            "function at the top of its module, not wrapped by a decorator above the one that registers it"
        )
    return Place(module, name) if module != "__main__" else _place_in_program(name)


def _place_in_program(name: str) -> Place:
    main = sys.modules["__main__"]
    argv = tuple(sys.argv)
    if main.__spec__ is not None and main.__spec__.name != "__main__":
        return Place(main.__spec__.name, name, argv)
    script = getattr(main, "__file__", None) or ""
    if not os.path.isfile(script):
        raise InvalidInput(
            f"{name} cannot run in a process of its own: the program it is part of is not a file; expected it in a module"
        )
    return Place("__main__", name, argv, script)


def _death(code: int) -> str:
    if code >= 0:
        return f"the process left with exit code {code} before its handler had ended"
    names = {each.value: each.name for each in signal.Signals}
    hint = ": by hand, or because memory ran out" if -code == signal.SIGKILL else ""
    return f"the process was killed by {names.get(-code, f'signal {-code}')}{hint}"


def _conclude(run: "Run", ended: Ended) -> bytes | None:
    assert run.handler is not None
    if ended.observed and run.context is not None:
        run.context._observed = True
    if ended.snooze_ms is not None:
        raise Snooze(ended.snooze_ms / 1000)
    if ended.gave_up and run.stop is not None:
        raise Cancelled(run.stop)
    if ended.failure is not None:
        raise RemoteError(ended.failure, ended.wait_ms / 1000)
    run.handler = replace(run.handler, encode=_as_it_is)
    return ended.result


def _as_it_is(result: bytes) -> bytes:
    return result
