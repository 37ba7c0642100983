"""Keeps the processes of a cluster running until SIGINT or SIGTERM."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.members import Member, Members

CHECK_SEC = 0.5
STABLE_SEC = 60.0
"""Uptime after which a process counts as started successfully, in seconds."""
LONGEST_PAUSE_SEC = 30.0
STOPPED = "the cluster is stopped; the servers keep running (to stop them: scripts/servers stop)"

Say = Callable[[str], None]


def supervise(members: Members, on_ready: Callable[[], None], say: Say) -> None:
    """Start all processes, restart those that die, and stop all at the first signal. A second signal kills them."""
    with _stop_signals(members) as stop_requested:
        try:
            members.start(stop_requested)
            if stop_requested.is_set():
                return
            on_ready()
            supervised = [_Supervised(member, members) for member in members.members]
            while not stop_requested.wait(CHECK_SEC):
                for each in supervised:
                    each.check(say)
        finally:
            say("stopping: waiting for running handlers; press Ctrl-C again to kill them")
            members.stop()
            say(STOPPED)


@dataclass
class _Supervised:
    member: Member
    members: Members
    started: float = 0.0
    pause: float = 0.0
    restart_at: float | None = None
    """Monotonic time of the next start, if the process has died."""

    def check(self, say: Say) -> None:
        now = time.monotonic()
        if self.member.daemon.pid is not None:
            return
        if self.restart_at is None:
            self._plan(now)
            say(f"{self.member.name} ended; {self._when()}. Last lines of {self.member.daemon.log}:")
            say(self.member.daemon.tail(5))
        elif now >= self.restart_at:
            self._start(now)
            say(f"{self.member.name} restarted as process {self.member.daemon.pid}")

    def _plan(self, now: float) -> None:
        """Schedule the restart: at once after a stable run, with increasing pauses after short ones."""
        was_stable = now - self.started > STABLE_SEC
        self.pause = 0.0 if was_stable else min(max(1.0, 2 * self.pause), LONGEST_PAUSE_SEC)
        self.restart_at = now + self.pause

    def _start(self, now: float) -> None:
        self.member.start(self.members.folder.environment())
        self.started, self.restart_at = now, None

    def _when(self) -> str:
        return f"restarting it in {self.pause:g} s" if self.pause else "restarting it now"


@contextmanager
def _stop_signals(members: Members) -> Iterator[threading.Event]:
    stop_requested = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if stop_requested.is_set():
            members.kill()
        stop_requested.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
