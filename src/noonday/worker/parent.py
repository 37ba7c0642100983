"""The parent process of `noonday worker`: it starts the worker, and a successor once that one is worn out.

A thread cannot be stopped, so a worker in which too many runs were abandoned has to end with them. Its supervisor (systemd, a
container) would see that as the end of the service, and there would be a gap. So the process that the supervisor knows is this
one, and it lives as long as the service does:

- The worker asks for a successor. The parent starts one with the same command line. As soon as it works, the old worker is told
  to retire: it takes nothing more, finishes what it runs, and ends. A successor that does not come up is tried again, later and
  later; meanwhile the old worker goes on.
- The first SIGTERM or SIGINT is passed on, the second one kills. A signal that reaches the workers as well, from a terminal or
  to a control group, does no harm: to a worker every further one is the same.
- The end of the worker is the end of the parent, with the same exit code (128 + N if signal N killed it). To start it again is up
  to the supervisor, which knows how often is too often.
- However the parent ends, the kernel kills the workers: they hold the other end of its lifeline.
- The first worker hands the parent its listening socket, so that its successors answer on the same port.

It imports nothing but the standard library: it costs a few megabytes and no time.
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
"""From a worker: here is my listening socket; I have begun; I want a successor."""
RETIRE = b"R"
"""To a worker: take nothing more, finish what runs, and end."""
MOST_RETIRING = 2
"""If more of them take their time, the oldest is told to stop."""
FIRST_WAIT_SEC, LONGEST_WAIT_SEC = 5.0, 300.0
"""How long to wait before a successor that did not come up is tried again."""
STARTS_WITHIN_SEC = 300.0
"""A successor that does not work by then is killed."""
FAILED = 1


class Phase(Enum):
    """Of a worker, as its parent sees it."""

    STARTING = auto()
    WORKING = auto()
    RETIRING = auto()


class Parent:
    """Runs `command` with the file descriptors `CHANNEL,LIFELINE,LISTENER` (or -1) as a further argument after it, and then
    `arguments`. To be used in the main thread of a process that does nothing else."""

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
        """Those that have not ended, oldest first."""
        self._signals: list[int] = []
        self._listener: int | None = None
        self._told_to_stop = False
        self._exit_code: int | None = None
        """Of the worker whose end is ours."""
        self._wants_successor = False
        self._first_wait_sec = self._wait_sec = first_wait_sec
        self._try_at = 0.0
        self._watched, self._lifeline = os.pipe()

    def run(self) -> int:
        """Returns the exit code."""
        self._catch_signals()
        self._start()
        while self._children:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            self._heed_signals()
            self._reap()
            self._take_care_of_successor()
        return FAILED if self._exit_code is None else self._exit_code

    def _catch_signals(self) -> None:
        heard, wake = socket.socketpair()
        heard.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: self._signals.append(number))
        self._selector.register(heard, selectors.EVENT_READ, lambda: _drain(heard))

    def _start(self) -> None:
        channel, theirs = socket.socketpair()
        passed = [theirs.fileno(), self._watched, *([] if self._listener is None else [self._listener])]
        ends = f"{theirs.fileno()},{self._watched},{-1 if self._listener is None else self._listener}"
        with theirs:
            process = subprocess.Popen([*self._command, ends, *self._arguments], pass_fds=passed)
        child = _Child(process, channel, self._monotonic())
        self._children[process.pid] = child
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear(child))

    def _hear(self, child: "_Child") -> None:
        try:
            word, fds, _, _ = socket.recv_fds(child.channel, 1, 1)
        except OSError:
            word, fds = b"", []
        if word == LISTENS and fds:
            self._listener = fds[0]
        elif word == WORKS:
            self._began(child)
        elif word == WORN_OUT:
            self._wants_successor = True
        elif not word:
            self._selector.unregister(child.channel)  # it ends: reaping says how

    def _began(self, child: "_Child") -> None:
        child.phase = Phase.WORKING
        for other in self._children.values():
            if other is not child and other.phase is Phase.WORKING:
                _say(f"pid {child.pid} has taken over from pid {other.pid}, which finishes what it runs and ends")
                other.phase = Phase.RETIRING
                other.tell(RETIRE)
                self._wants_successor = False
                self._wait_sec = self._first_wait_sec
        retiring = [each for each in self._children.values() if each.phase is Phase.RETIRING]
        for each in retiring[: max(0, len(retiring) - MOST_RETIRING)]:
            each.signal(signal.SIGTERM)

    def _heed_signals(self) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGCHLD:
                continue
            if self._told_to_stop:
                self._signal_all(signal.SIGKILL)
                self._exit_code = 128 + number
            else:
                self._told_to_stop = True
                self._signal_all(number)

    def _reap(self) -> None:
        """Also of what was left to us by a worker that is gone: in a container we are everybody's parent."""
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
                _say(f"pid {child.pid}, which had been told to retire, ended with {_how(code)}")
        elif is_successor and not self._told_to_stop:
            _say(
                f"the successor, pid {child.pid}, ended with {_how(code)}; the next one starts in {self._wait_sec:.0f} s"
            )
            self._try_at = self._monotonic() + self._wait_sec
            self._wait_sec = min(LONGEST_WAIT_SEC, 2 * self._wait_sec)
        elif not is_successor:
            if self._exit_code is None:
                self._exit_code = code if code >= 0 else 128 - code
            self._told_to_stop = True
            self._signal_all(signal.SIGTERM)

    def _take_care_of_successor(self) -> None:
        if self._told_to_stop:
            return
        starting = [each for each in self._children.values() if each.phase is Phase.STARTING]
        if self._wants_successor and not starting and self._monotonic() >= self._try_at:
            _say("too many runs were abandoned in the worker: starting a successor")
            self._start()
        elif starting and self._wants_successor and starting[0].age_sec(self._monotonic()) > STARTS_WITHIN_SEC:
            starting[0].signal(signal.SIGKILL)

    def _timeout(self) -> float | None:
        return 1.0 if self._wants_successor else None

    def _signal_all(self, number: int) -> None:
        for child in self._children.values():
            child.signal(number)


class _Child:
    """A worker."""

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

    def tell(self, word: bytes) -> None:
        try:
            self.channel.send(word)
        except OSError:
            return  # it ends: reaping says how

    def signal(self, number: int) -> None:
        # Not reaped by anybody but us, so its number is still its own.
        os.kill(self.pid, number)

    def close(self, code: int) -> None:
        self._process.returncode = code
        self.channel.close()


def _drain(heard: socket.socket) -> None:
    try:
        while heard.recv(4096):
            pass
    except BlockingIOError:
        return


def _say(text: str) -> None:
    # Not through the log: that is what the parent does without.
    print(f"noonday worker: {text}", file=sys.stderr, flush=True)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
