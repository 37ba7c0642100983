"""The processes of a cluster: their commands, start, stop and readiness."""

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

from cluster.folder import ClusterFolder
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
"""Arguments of `noonday` for each process. Ports are consecutive, in this order."""
PATIENCE_SEC = 300.0
"""Time that all processes have to become ready, in seconds. Long enough for a heavily loaded machine."""
STOP_SEC = 45.0
"""Time that a process has to stop, in seconds: more than drain time and cancel grace of its handlers."""


class ClusterFailed(Exception):
    """A process did not start or is not ready. The message ends with the last lines of its log."""


class PortsTaken(Exception):
    """Another process listens on a port that the cluster needs."""


@dataclass
class Member:
    """One process. An earlier `scripts/cluster` command may have started it."""

    name: str
    port: int
    daemon: Daemon

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, environment: Mapping[str, str]) -> None:
        arguments = [str(NOONDAY), *ROLES[self.name], "--port", str(self.port)]
        self.daemon.spawn(Command(arguments, env={**environment, "PYTHONPATH": str(ROOT / "examples")}))

    def why_not_ready(self) -> str | None:
        """Return why the process is not ready, or None if it is ready."""
        connection = HTTPConnection(HOST, self.port, timeout=2.0)
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            return None if response.status == HTTPStatus.OK else _reasons(response.read())
        except (OSError, HTTPException) as error:
            return f"no response from {self.url} ({error})"
        finally:
            connection.close()


@dataclass
class Members:
    """All processes of a cluster, in the order of `ROLES`."""

    folder: ClusterFolder
    port: int
    members: list[Member] = field(init=False)

    def __post_init__(self) -> None:
        self.members = [
            Member(name, self.port + index, Daemon(self.folder.path / name)) for index, name in enumerate(ROLES)
        ]

    def check_ports(self) -> None:
        taken = [str(member.port) for member in self.members if not is_free(member.port)]
        if taken:
            last = self.port + len(ROLES) - 1
            raise PortsTaken(
                f"another process listens on {', '.join(taken)}, and the cluster needs ports {self.port} to {last}: "
                f"choose other ports, for example with: make cluster PORT={self.port + 1000}"
            )

    def start(self, stop_requested: Event) -> None:
        """Start all processes, and return when all are ready or a stop is requested. Raises ClusterFailed."""
        for member in self.members:
            member.start(self.folder.environment())
        waiting = list(self.members)

        def all_ready() -> bool:
            waiting[:] = [member for member in waiting if member.why_not_ready()]
            has_died = any(member.daemon.pid is None for member in waiting)
            return not waiting or has_died or stop_requested.is_set()

        eventually(all_ready, PATIENCE_SEC)
        if waiting and not stop_requested.is_set():
            raise ClusterFailed("\n".join(_complaint(member) for member in waiting))

    def stop(self) -> None:
        """Stop all processes. Recorders stop last, so that they record the final reports of the others."""
        self._end([member for member in self.members if not member.name.startswith("recorder")])
        self._end([member for member in self.members if member.name.startswith("recorder")])

    def kill(self) -> None:
        """Kill all processes."""
        for member in self.members:
            member.daemon.kill()

    def _end(self, members: list[Member]) -> None:
        with ThreadPoolExecutor(len(members)) as pool:
            ends = [pool.submit(member.daemon.end, signal.SIGTERM, STOP_SEC) for member in members]
        for end in ends:
            end.result()


def _complaint(member: Member) -> str:
    daemon = member.daemon
    problem = "ended" if daemon.pid is None else f"is not ready: {member.why_not_ready()}"
    return f"{member.name} {problem}; last lines of {daemon.log}:\n{daemon.tail()}"


def _reasons(body: bytes) -> str:
    try:
        response = json.loads(body)
        return "; ".join(response.get("reasons") or [response.get("detail", "not ready")])
    except (ValueError, AttributeError):
        return "its response is not one of Noonday"
