"""The parent process of `noonday worker`, which starts the worker, and a successor when it has too many abandoned runs.

A thread cannot be stopped, so a worker with too many abandoned runs has to end with them. Its supervisor (systemd, a container)
would see that as the end of the service, and there would be a gap. So the supervisor knows this parent process, which lives as
long as the service does:

- The worker asks for a successor. The parent starts one with the same command line. As soon as the successor works, the parent
  retires the old worker: it takes nothing more, finishes its runs, and ends. If a successor fails to start, the parent
  tries again with growing delays; meanwhile the old worker continues.
- The parent passes the first SIGTERM or SIGINT on to the workers; the second one kills them. A signal that also reaches the
  workers directly, from a terminal or through a control group, does no harm: workers ignore repeated signals.
- When the worker ends, the parent ends with the same exit code (128 + N if signal N killed the worker). The supervisor decides
  whether to restart it, and how often.
- However the parent ends, the kernel kills the workers: they have the other end of its lifeline.
- The first worker passes its listening socket to the parent, so that successors answer on the same port.

The module imports only the standard library, so the parent needs a few megabytes and starts at once.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto

LISTENS, WORKS, WORN_OUT = b"L", b"W", b"S"
"""Messages from a worker: its listening socket; that it works; that it needs a successor."""
RETIRE = b"R"
"""Message to a worker: take nothing more, finish the runs, and end."""
MOST_RETIRING = 2
"""Maximum number of retiring workers. If there are more, the oldest are stopped."""
FIRST_WAIT_SEC, LONGEST_WAIT_SEC = 5.0, 300.0
"""Seconds until another try after a successor failed to start; doubled from the first to the longest."""
STARTS_WITHIN_SEC = 300.0
"""Seconds after which a successor that does not work yet is killed."""
FAILED = 1
"""Exit code if no worker gave one."""


class Phase(Enum):
    """The phase of a worker, as its parent knows it."""

    STARTING = auto()
    WORKING = auto()
    RETIRING = auto()


class Parent:
    """Starts workers, passes signals on to them, and ends with the last.

    A worker is started as `command`, then the file descriptors `CHANNEL,LIFELINE,LISTENER` (LISTENER may be -1) as one argument,
    then `arguments`. For use in the main thread of a process that does nothing else.
    """

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        *,
        first_wait_sec: float = FIRST_WAIT_SEC,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._arguments = arguments
        self._monotonic = monotonic
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        """Workers that have not ended, oldest first."""
        self._signals: list[int] = []
        self._listener: int | None = None
        self._stopping = False
        self._exit_code: int | None = None
        """The exit code of the worker with which the parent ends."""
        self._wants_successor = False
        self._first_wait_sec = self._wait_sec = first_wait_sec
        self._try_at = 0.0
        self._child_lifeline, self._lifeline = os.pipe()

    def run(self) -> int:
        """Run until all workers have ended. Returns the exit code."""
        self._catch_signals()
        self._start()
        while self._children:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            self._handle_signals()
            self._reap()
            self._tend_successor()
        return FAILED if self._exit_code is None else self._exit_code

    def _catch_signals(self) -> None:
        wake_reader, wake_writer = socket.socketpair()
        wake_reader.setblocking(False)
        wake_writer.setblocking(False)
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        self._wake_writer = wake_writer
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: self._signals.append(number))
        self._selector.register(wake_reader, selectors.EVENT_READ, lambda: _drain(wake_reader))

    def _start(self) -> None:
        channel, child_channel = socket.socketpair()
        passed = [child_channel.fileno(), self._child_lifeline, *([] if self._listener is None else [self._listener])]
        descriptors = (
            f"{child_channel.fileno()},{self._child_lifeline},{-1 if self._listener is None else self._listener}"
        )
        with child_channel:
            process = subprocess.Popen([*self._command, descriptors, *self._arguments], pass_fds=passed)
        child = _Child(process, channel, self._monotonic())
        self._children[process.pid] = child
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._receive(child))

    def _receive(self, child: "_Child") -> None:
        try:
            message, fds, _, _ = socket.recv_fds(child.channel, 1, 1)
        except OSError:
            message, fds = b"", []
        if message == LISTENS and fds:
            self._listener = fds[0]
        elif message == WORKS:
            self._on_working(child)
        elif message == WORN_OUT:
            self._wants_successor = True
        elif not message:
            self._selector.unregister(child.channel)  # the worker ends; `_reap` gets its exit code

    def _on_working(self, child: "_Child") -> None:
        child.phase = Phase.WORKING
        for other in self._children.values():
            if other is not child and other.phase is Phase.WORKING:
                _print(f"pid {child.pid} has taken over from pid {other.pid}, which finishes its runs and ends")
                other.phase = Phase.RETIRING
                other.send(RETIRE)
                self._wants_successor = False
                self._wait_sec = self._first_wait_sec
        retiring = [each for each in self._children.values() if each.phase is Phase.RETIRING]
        for each in retiring[: max(0, len(retiring) - MOST_RETIRING)]:
            each.signal(signal.SIGTERM)

    def _handle_signals(self) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGCHLD:
                continue
            if self._stopping:
                self._signal_all(signal.SIGKILL)
                self._exit_code = 128 + number
            else:
                self._stopping = True
                self._signal_all(number)

    def _reap(self) -> None:
        """Reap ended processes, including orphans of ended workers: in a container, this process is their parent."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if child := self._children.pop(pid, None):
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: "_Child", code: int) -> None:
        if child.channel in self._selector.get_map():
            self._selector.unregister(child.channel)
        child.close(code)
        is_successor = child.phase is Phase.STARTING and any(
            each.phase is Phase.WORKING for each in self._children.values()
        )
        if child.phase is Phase.RETIRING:
            if code:
                _print(f"pid {child.pid}, which was retiring, ended with {_describe_exit(code)}")
        elif is_successor and not self._stopping:
            _print(
                f"the successor, pid {child.pid}, ended with {_describe_exit(code)}; next try in {self._wait_sec:.0f} s"
            )
            self._try_at = self._monotonic() + self._wait_sec
            self._wait_sec = min(LONGEST_WAIT_SEC, 2 * self._wait_sec)
        elif not is_successor:
            if self._exit_code is None:
                self._exit_code = code if code >= 0 else 128 - code
            self._stopping = True
            self._signal_all(signal.SIGTERM)

    def _tend_successor(self) -> None:
        """Start a successor if one is needed and due. Kill one that takes too long to start."""
        if self._stopping:
            return
        starting = [each for each in self._children.values() if each.phase is Phase.STARTING]
        if self._wants_successor and not starting and self._monotonic() >= self._try_at:
            _print("the worker has too many abandoned runs: starting a successor")
            self._start()
        elif starting and self._wants_successor and starting[0].age_sec(self._monotonic()) > STARTS_WITHIN_SEC:
            starting[0].signal(signal.SIGKILL)

    def _timeout(self) -> float | None:
        return 1.0 if self._wants_successor else None

    def _signal_all(self, number: int) -> None:
        for child in self._children.values():
            child.signal(number)


class _Child:
    """A worker process and its channel."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: socket.socket, started_at: float) -> None:
        self._process = process
        self.channel = channel
        self.phase = Phase.STARTING
        self._started_at = started_at

    @property
    def pid(self) -> int:
        return self._process.pid

    def age_sec(self, now: float) -> float:
        return now - self._started_at

    def send(self, message: bytes) -> None:
        try:
            self.channel.send(message)
        except OSError:
            return  # the worker ends; `_reap` gets its exit code

    def signal(self, number: int) -> None:
        # Only this process reaps it, so no other process can have its pid yet.
        os.kill(self.pid, number)

    def close(self, code: int) -> None:
        self._process.returncode = code
        self.channel.close()


def _drain(wake_reader: socket.socket) -> None:
    try:
        while wake_reader.recv(4096):
            pass
    except BlockingIOError:
        return


def _print(text: str) -> None:
    # Printed, because the parent does not import the logging library.
    print(f"noonday worker: {text}", file=sys.stderr, flush=True)


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
