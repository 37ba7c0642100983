"""One command of the operating system: its process group, its output and its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import IO

import msgspec

from noonday.model.errors import DoNotRetry, NoondayError
from noonday.model.shell import ShellCommand

TERM_SEC = 2.0
"""Seconds that a cancelled command has between SIGTERM and SIGKILL."""
DRAIN_SEC = 1.0
"""Seconds for which output is read after the process group was killed: a process that left the group may hold the pipe open."""
CHUNK = 65_536
MESSAGE_CHARS = 2_000
"""Maximum length of the output in the message of a failure."""
_GUARD = 'exec 3<&0 </dev/null; { read -r _ <&3; kill -s KILL -- -$$; } >/dev/null 2>&1 3<&3 & exec 3<&-; exec "$@"'
"""Runs the command in this process, beside a guard that kills the group when the pipe on standard input is closed."""


class CommandFailed(NoondayError):
    """A command ended with an exit code other than 0, or by a signal. The message has the end of its output."""

    code = "command-failed"


class CommandResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a command that succeeded. Of each output, the end is kept."""

    exit_code: int
    stdout: str
    stderr: str
    stdout_bytes: int
    """Number of bytes that were written, which may be more than are kept."""
    stderr_bytes: int


class Tail:
    """The end of an output."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._kept += data
        del self._kept[: max(0, len(self._kept) - self._limit)]

    @property
    def dropped(self) -> int:
        """Number of bytes that were dropped from the beginning."""
        return self.total - len(self._kept)

    @property
    def text(self) -> str:
        """The end of the output, of at most `limit` bytes as JSON."""
        text = self._kept.decode(errors="replace")
        while (over := len(msgspec.json.encode(text)) - 2 - self._limit) > 0:
            text = text[max(1, over // 6) :]
        return text


async def run_command(
    command: ShellCommand,
    environment: Mapping[str, str],
    cwd: str,
    keep: int,
    on_output: Callable[[str, Tail], None] = lambda name, output: None,
) -> CommandResult:
    """Run a command to its end. Up to `keep` bytes of each output are kept.

    `on_output` is called with the name and the end of each output, however the command ended. Raises CommandFailed, and
    DoNotRetry if it cannot be started. If the task is cancelled, the process group gets SIGTERM, and SIGKILL after TERM_SEC.
    """
    out, err = Tail(keep), Tail(keep)
    lifeline, own_end = os.pipe()
    try:
        process = _start(command, environment, cwd, lifeline)
        ended = _watch(process)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [asyncio.create_task(_read(process.stdout, out)), asyncio.create_task(_read(process.stderr, err))]
        try:
            await ended.wait()
        except asyncio.CancelledError:
            _signal_group(process, signal.SIGTERM)
            await _within(TERM_SEC, ended)
            raise
        finally:
            _signal_group(process, signal.SIGKILL)
            await _within(DRAIN_SEC, ended)
            if ended.is_set():
                process.wait()
            await _drain(readers)
            for name, output in (("stdout", out), ("stderr", err)):
                on_output(name, output)
    finally:
        os.close(lifeline)
        os.close(own_end)
    code = process.returncode
    if code:
        raise CommandFailed(_described(code, err.text.strip() or out.text.strip()))
    return CommandResult(code, out.text, err.text, out.total, err.total)


def _start(command: ShellCommand, environment: Mapping[str, str], cwd: str, lifeline: int) -> "subprocess.Popen[bytes]":
    """Start the command. It inherits no file descriptor of this process, which `subprocess` ensures and event loops do not."""
    words = ["/bin/sh", "-c", _GUARD, "sh", *command.words]
    try:
        return subprocess.Popen(
            words,
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise DoNotRetry(f"cannot run {command.words[0]!r} in {cwd}: {error.strerror or error}") from error


def _watch(process: "subprocess.Popen[bytes]") -> asyncio.Event:
    """Return an event that is set when the process has ended. It is not reaped, so that its group keeps its id."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, name=f"command-{process.pid}", daemon=True).start()
    return ended


async def _read(pipe: IO[bytes], tail: Tail) -> None:
    """Add all that the pipe has to the tail, and close it."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    try:
        while data := await stream.read(CHUNK):
            tail.add(data)
    finally:
        transport.close()


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to the group, which has the id of its first process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _drain(readers: list["asyncio.Task[None]"]) -> None:
    await asyncio.wait(readers, timeout=DRAIN_SEC)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


def _described(code: int, output: str) -> str:
    if code < 0:
        try:
            end = f"ended by {signal.Signals(-code).name}"
        except ValueError:
            end = f"ended by signal {-code}"
    else:
        end = f"exit code {code}"
    return f"{end}: {output[-MESSAGE_CHARS:]}" if output else end
