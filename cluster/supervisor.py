"""Keeps the processes of a cluster running until it is told to stop."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.members import Member, Members

LOOK_SEC = 0.5
STEADY_SEC = 60.0
"""Who lived so long did not fail to start."""
LONGEST_PAUSE_SEC = 30.0

Say = Callable[[str], None]


def supervise(members: Members, on_ready: Callable[[], None], say: Say) -> None:
    """Start all, name and start again whoever dies, and stop all at the first signal; the second one kills them."""
    with _told_to_stop(members) as told:
        try:
            members.start(told)
            if told.is_set():
                return
            on_ready()
            watches = [_Watch(member, members) for member in members.members]
            while not told.wait(LOOK_SEC):
                for watch in watches:
                    watch.look(say)
        finally:
            say("stopping: running handlers may finish; Ctrl-C again ends them at once")
            members.stop()
            say("stopped; the servers go on (scripts/servers stop)")


@dataclass
class _Watch:
    member: Member
    members: Members
    started: float = 0.0
    pause: float = 0.0
    again_at: float | None = None
    """When it is to be started again, if it has died."""

    def look(self, say: Say) -> None:
        now = time.monotonic()
        if self.member.daemon.pid is not None:
            return
        if self.again_at is None:
            self._plan(now)
            say(f"{self.member.name} ended; {self._when()}. The end of {self.member.daemon.log}:")
            say(self.member.daemon.tail(5))
        elif now >= self.again_at:
            self._start(now)
            say(f"{self.member.name} was started again, as process {self.member.daemon.pid}")

    def _plan(self, now: float) -> None:
        """At once after a steady life; ever later for one that does not get far."""
        steady = now - self.started > STEADY_SEC
        self.pause = 0.0 if steady else min(max(1.0, 2 * self.pause), LONGEST_PAUSE_SEC)
        self.again_at = now + self.pause

    def _start(self, now: float) -> None:
        self.member.start(self.members.place.environment())
        self.started, self.again_at = now, None

    def _when(self) -> str:
        return f"it is started again in {self.pause:g} s" if self.pause else "it is started again now"


@contextmanager
def _told_to_stop(members: Members) -> Iterator[threading.Event]:
    told = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if told.is_set():
            members.hurry()
        told.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
