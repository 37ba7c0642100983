"""What all servers have in common: nodes that are started, stopped, killed, frozen and waited for."""

import json
import shutil
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from servers.errors import ServerFailed, WrongUse
from servers.ports import HOST, is_free
from servers.process import Command, Daemon

RECORD = "ports.json"
PATIENCE = 90.0  # a cold JVM on a busy machine needs a good part of it


class Server(ABC):
    """One server of one or several nodes, with its data below `base` and its ports on 127.0.0.1 only.

    Each method takes `node`, the index of one node; without it, all nodes are meant. As a context manager it is started
    on entering, and wiped on leaving.
    """

    name: ClassVar[str]
    ports_per_node: ClassVar[int]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_patience: ClassVar[float] = 30.0
    quit_signal: ClassVar[signal.Signals] = signal.SIGKILL  # at once, when the data do not matter

    def __init__(self, base: Path, ports: Sequence[int], nodes: int) -> None:
        if nodes not in (1, 3):
            raise WrongUse(f"{self.name} runs with 1 or 3 nodes, not {nodes}")
        if len(ports) != nodes * self.ports_per_node:
            raise WrongUse(
                f"{self.name} with {nodes} nodes needs {nodes * self.ports_per_node} ports, not {len(ports)}"
            )
        self.base = base.absolute()
        self.ports = [tuple(ports[i : i + self.ports_per_node]) for i in range(0, len(ports), self.ports_per_node)]
        self.daemons = [Daemon(self.base / f"node{index}") for index in range(nodes)]

    @property
    @abstractmethod
    def url(self) -> str:
        """Where a client finds it."""

    @property
    def folders(self) -> list[Path]:
        """Everything that `wipe` deletes."""
        return [self.base]

    def start(self, node: int | None = None, *, patience: float = PATIENCE) -> Self:
        """Start what does not run yet and return when it answers."""
        sleeping = [index for index in self._chosen(node) if self.daemons[index].pid is None]
        if sleeping:
            self._remember()
            with ThreadPoolExecutor(len(sleeping)) as pool:
                list(pool.map(self._launch, sleeping))
        self.wait_ready(node, patience=patience)
        self._settle()
        return self

    def stop(self, node: int | None = None) -> bool:
        """End it in good order. Tells whether that was enough, or it had to be killed because it took too long."""
        chosen = [self.daemons[index] for index in self._chosen(node)]
        with ThreadPoolExecutor(len(chosen)) as pool:
            ends = [pool.submit(daemon.end, self.stop_signal, self.stop_patience) for daemon in chosen]
        return all(end.result() for end in ends)

    def restart(self, node: int | None = None) -> Self:
        self.stop(node)
        return self.start(node)

    def kill(self, node: int | None = None) -> None:
        """SIGKILL, to every process of the node at once."""
        for index in self._chosen(node):
            self.daemons[index].kill()

    def pause(self, node: int | None = None) -> None:
        """Freeze every process of the node: connections stay open, and nothing answers."""
        for index in self._chosen(node):
            self.daemons[index].pause()

    def resume(self, node: int | None = None) -> None:
        for index in self._chosen(node):
            self.daemons[index].resume()

    def wipe(self) -> None:
        """End it and delete all its data."""
        for daemon in self.daemons:
            daemon.end(self.quit_signal, 10)
        for folder in self.folders:
            if folder.exists():
                shutil.rmtree(folder)

    def wait_ready(self, node: int | None = None, *, patience: float = PATIENCE) -> None:
        """Return when each node answers a request of its protocol; raise ServerFailed when one ends or stays silent."""
        deadline = time.monotonic() + patience
        for index in self._chosen(node):
            self._wait(index, deadline)

    @property
    def running(self) -> bool:
        return all(daemon.pid is not None for daemon in self.daemons)

    @abstractmethod
    def answers(self, node: int) -> bool:
        """Whether the node answers a request of its own protocol now."""

    @abstractmethod
    def _prepare(self, node: int) -> Command:
        """Make the node's folder and configuration, and say how to start it. Called before each start."""

    def _settle(self) -> None:  # noqa: B027 - most servers need nothing
        """What is done each time it has started: must be safe to repeat."""

    def _chosen(self, node: int | None) -> list[int]:
        return list(range(len(self.daemons))) if node is None else [node]

    def _launch(self, node: int) -> None:
        if sys.platform != "linux":
            raise ServerFailed(
                f"our own {self.name} runs on Linux only: name one that runs already, see scripts/servers --help"
            )
        for port in self.ports[node]:
            if not is_free(port):
                raise ServerFailed(f"{self.name}: another process listens on {HOST}:{port}")
        self.daemons[node].folder.mkdir(parents=True, exist_ok=True)
        self.daemons[node].spawn(self._prepare(node))

    def _wait(self, node: int, deadline: float) -> None:
        pause = 0.02
        while not self.answers(node):
            if self.daemons[node].pid is None:
                raise ServerFailed(self._complaint(node, "ended instead of answering"))
            if time.monotonic() > deadline:
                raise ServerFailed(self._complaint(node, "does not answer"))
            time.sleep(pause)
            pause = min(pause * 1.3, 0.25)

    def _complaint(self, node: int, what: str) -> str:
        daemon = self.daemons[node]
        return f"{self.name} on port {self.ports[node][0]} {what}; the end of {daemon.log}:\n{daemon.tail()}"

    def _remember(self) -> None:
        """The data belong to these ports and this number of nodes, until they are wiped."""
        self.base.mkdir(parents=True, exist_ok=True)
        remembered = recorded_ports(self.base)
        if remembered and remembered != self._flat_ports:
            raise WrongUse(
                f"the data in {self.base} belong to ports {remembered}, not {self._flat_ports}: wipe them first"
            )
        (self.base / RECORD).write_text(json.dumps(self._flat_ports))

    @property
    def _flat_ports(self) -> list[int]:
        return [port for node in self.ports for port in node]

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.wipe()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wipe()


def recorded_ports(base: Path) -> list[int] | None:
    """The ports that the data below `base` belong to, if there are any."""
    path = base / RECORD
    return list(json.loads(path.read_text())) if path.exists() else None
