"""The processes of a cluster that is measured: as many of each role as were asked for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from bench import BenchFailed
from bench.machine import has_ended
from bench.served import Process, complaints_in, stopped_afterwards

CLUSTER = "cluster"
WORKER = "worker"
CALLER = "caller"
"""A worker that calls webhooks."""
API = "api"
HANDLERS = "bench.handlers:app"
_COMMANDS = {
    "scheduler": ("serve", "--roles", "scheduler"),
    "recorder": ("serve", "--roles", "recorder"),
    WORKER: ("worker", HANDLERS),
    CALLER: ("worker", "--pool", "webhooks"),
    API: ("serve", "--roles", "api"),
}


class Member(msgspec.Struct, frozen=True):
    role: str
    pid: int
    directory: str


class Running(msgspec.Struct, frozen=True, tag="cluster"):
    """A cluster that was started for us. The environment says how to reach it."""

    members: list[Member]
    servers: dict[str, list[int]]
    """The processes of those servers that can be seen."""


@dataclass(frozen=True)
class FleetSize:
    schedulers: int = 1
    recorders: int = 1
    workers: int = 1

    def counts(self) -> dict[str, int]:
        return {"schedulers": self.schedulers, "recorders": self.recorders, "workers": self.workers}

    def roles(self, *, api: bool = False, calls: bool = False) -> list[str]:
        """One for each process."""
        return [
            *["scheduler"] * self.schedulers,
            *["recorder"] * self.recorders,
            *[CALLER if calls else WORKER] * self.workers,
            *[API] * api,
        ]


@dataclass(frozen=True)
class Fleet:
    members: list[Member]
    startup_sec: float
    url: str
    """Of the member that was started last: the API, if it is among them."""


@contextmanager
def fleet(
    roles: list[str], directory: Path, environment: Mapping[str, str], handlers: str = HANDLERS
) -> Iterator[Fleet]:
    """Start them side by side, and stop them; workers with the application that is called `handlers`. Raises BenchFailed."""
    processes: list[Process] = []
    with stopped_afterwards(processes):
        for role in roles:
            own = Path(mkdtemp(prefix=f"{role}-", dir=directory))
            words = [handlers if word == HANDLERS else word for word in _COMMANDS[role]]
            processes.append(Process(words, own, environment))
        startup_sec = max([process.await_ready() for process in processes])
        members = [
            Member(role, process.pid, str(process.directory)) for role, process in zip(roles, processes, strict=True)
        ]
        yield Fleet(members, startup_sec, processes[-1].url)


def by_role(members: list[Member]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for member in members:
        found.setdefault(member.role, []).append(member.pid)
    return found


def check_members(members: list[Member]) -> None:
    """Raises BenchFailed if one has ended."""
    for member in members:
        if has_ended(member.pid):
            raise BenchFailed(f"a {member.role} ended: {complaints_in(Path(member.directory))}")
