"""The processes of a cluster: which there are, how each is started, and whether it does its work."""

import json
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event

from servers.ports import HOST
from servers.project import ROOT

from cluster.place import Place
from servers import Command, Daemon, eventually, is_free

NOONDAY = Path(sys.executable).with_name("noonday")
ROLES: Mapping[str, tuple[str, ...]] = {
    "api-1": ("serve", "--roles", "api"),
    "api-2": ("serve", "--roles", "api"),
    "scheduler-1": ("serve", "--roles", "scheduler"),
    "scheduler-2": ("serve", "--roles", "scheduler"),
    "scheduler-3": ("serve", "--roles", "scheduler"),
    "recorder-1": ("serve", "--roles", "recorder"),
    "recorder-2": ("serve", "--roles", "recorder"),
    "worker-demo": ("worker",),
    "worker-etl": ("worker", "cluster_app:app", "--pool", "batch-etl"),
    "worker-emails": ("worker", "cluster_app:app", "--pool", "emails"),
    "worker-webhooks": ("worker", "--pool", "webhooks", "--pool", "notices"),
}
"""What `noonday` is told, for each process. Each has the port after the one before."""
PATIENCE_SEC = 300.0
"""Long enough for a machine with ten times as much to do."""
STOP_SEC = 45.0
"""Handlers may finish for 30 s, and may be cancelled for 10 s."""


class ClusterFailed(Exception):
    """A process did not start, or does not do its work; the message ends with the last lines of its log."""


class PortsTaken(Exception):
    """Somebody else listens where we would."""


@dataclass
class Member:
    """One process, which may have been started by a command before this one."""

    name: str
    port: int
    daemon: Daemon

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, environment: Mapping[str, str]) -> None:
        words = [str(NOONDAY), *ROLES[self.name], "--port", str(self.port)]
        self.daemon.spawn(Command(words, env={**environment, "PYTHONPATH": str(ROOT / "examples")}))

    def why_not_ready(self) -> str | None:
        """None, if it does its work."""
        asking = HTTPConnection(HOST, self.port, timeout=2.0)
        try:
            asking.request("GET", "/readyz")
            answer = asking.getresponse()
            return None if answer.status == HTTPStatus.OK else _reasons(answer.read())
        except (OSError, HTTPException) as error:
            return f"nothing answers at {self.url} ({error})"
        finally:
            asking.close()


@dataclass
class Members:
    """All of them, in the order they are shown."""

    place: Place
    port: int
    members: list[Member] = field(init=False)

    def __post_init__(self) -> None:
        self.members = [
            Member(name, self.port + index, Daemon(self.place.folder / name)) for index, name in enumerate(ROLES)
        ]

    def check_ports(self) -> None:
        taken = [str(member.port) for member in self.members if not is_free(member.port)]
        if taken:
            last = self.port + len(ROLES) - 1
            raise PortsTaken(
                f"another process listens on {', '.join(taken)} (all of {self.port} to {last} are needed): "
                f"choose others, such as: make cluster PORT={self.port + 1000}"
            )

    def start(self, told_to_stop: Event) -> None:
        """Start all at once, and return when each of them does its work."""
        for member in self.members:
            member.start(self.place.environment())
        waiting = list(self.members)

        def all_ready() -> bool:
            waiting[:] = [member for member in waiting if member.why_not_ready()]
            over = any(member.daemon.pid is None for member in waiting)
            return not waiting or over or told_to_stop.is_set()

        eventually(all_ready, PATIENCE_SEC)
        if waiting and not told_to_stop.is_set():
            raise ClusterFailed("\n".join(_complaint(member) for member in waiting))

    def stop(self) -> None:
        """End all in good order. Recorders go last: what the others say at their end is then recorded."""
        self._end([member for member in self.members if not member.name.startswith("recorder")])
        self._end([member for member in self.members if member.name.startswith("recorder")])

    def hurry(self) -> None:
        """Those that are stopping end at once."""
        for member in self.members:
            member.daemon.kill()

    def _end(self, members: list[Member]) -> None:
        with ThreadPoolExecutor(len(members)) as pool:
            ends = [pool.submit(member.daemon.end, signal.SIGTERM, STOP_SEC) for member in members]
        for end in ends:
            end.result()


def _complaint(member: Member) -> str:
    daemon = member.daemon
    what = "ended" if daemon.pid is None else f"is not ready: {member.why_not_ready()}"
    return f"{member.name} {what}; the end of {daemon.log}:\n{daemon.tail()}"


def _reasons(body: bytes) -> str:
    try:
        said = json.loads(body)
        return "; ".join(said.get("reasons") or [said.get("detail", "not ready")])
    except (ValueError, AttributeError):
        return "it does not answer as Noonday does"
