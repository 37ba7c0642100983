"""Base class of servers: starts, stops, kills and pauses nodes, and waits until they are ready."""

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
PATIENCE = 90.0  # seconds; a JVM on a loaded machine starts slowly


class Server(ABC):
    """One server with one or three nodes, with its data below `base` and its ports on 127.0.0.1 only.

    Most methods take `node`, the index of one node; without it, they apply to all nodes. As a context manager, the server
    starts at the beginning of the block and is wiped at its end.
    """

    name: ClassVar[str]
    ports_per_node: ClassVar[int]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_patience: ClassVar[float] = 30.0
    quit_signal: ClassVar[signal.Signals] = signal.SIGKILL  # immediate stop, for data that are wiped

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
        """URL for clients."""

    @property
    def folders(self) -> list[Path]:
        """Folders that `wipe` deletes."""
        return [self.base]

    def start(self, node: int | None = None, *, patience: float = PATIENCE) -> Self:
        """Start the nodes that do not run, and return when all respond. Raises ServerFailed."""
        stopped = [index for index in self._selected(node) if self.daemons[index].pid is None]
        if stopped:
            self._record_ports()
            with ThreadPoolExecutor(len(stopped)) as pool:
                list(pool.map(self._launch, stopped))
        self.wait_ready(node, patience=patience)
        self._settle()
        return self

    def stop(self, node: int | None = None) -> bool:
        """Stop the nodes. Returns False if one had to be killed because it took too long."""
        daemons = [self.daemons[index] for index in self._selected(node)]
        with ThreadPoolExecutor(len(daemons)) as pool:
            ends = [pool.submit(daemon.end, self.stop_signal, self.stop_patience) for daemon in daemons]
        return all(end.result() for end in ends)

    def restart(self, node: int | None = None) -> Self:
        self.stop(node)
        return self.start(node)

    def kill(self, node: int | None = None) -> None:
        """Send SIGKILL to all processes of the nodes."""
        for index in self._selected(node):
            self.daemons[index].kill()

    def pause(self, node: int | None = None) -> None:
        """Freeze all processes of the nodes (SIGSTOP): connections stay open, but get no response."""
        for index in self._selected(node):
            self.daemons[index].pause()

    def resume(self, node: int | None = None) -> None:
        for index in self._selected(node):
            self.daemons[index].resume()

    def wipe(self) -> None:
        """Stop the server and delete all its data."""
        for daemon in self.daemons:
            daemon.end(self.quit_signal, 10)
        for folder in self.folders:
            if folder.exists():
                shutil.rmtree(folder)

    def wait_ready(self, node: int | None = None, *, patience: float = PATIENCE) -> None:
        """Wait until each node responds to a request of its protocol. Raises ServerFailed if a node ends or does not respond."""
        deadline = time.monotonic() + patience
        for index in self._selected(node):
            self._wait(index, deadline)

    @property
    def running(self) -> bool:
        return all(daemon.pid is not None for daemon in self.daemons)

    @abstractmethod
    def answers(self, node: int) -> bool:
        """Return whether the node responds to a request of its protocol now."""

    @abstractmethod
    def _prepare(self, node: int) -> Command:
        """Create the folder and configuration of a node, and return its command. Called before each start."""

    def _settle(self) -> None:  # noqa: B027 - most servers need nothing
        """Complete a start. Called after each start, so it must be safe to repeat."""

    def _selected(self, node: int | None) -> list[int]:
        return list(range(len(self.daemons))) if node is None else [node]

    def _launch(self, node: int) -> None:
        if sys.platform != "linux":
            raise ServerFailed(
                f"scripts/servers runs {self.name} on Linux only: use a running server, see scripts/servers --help"
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
                raise ServerFailed(self._complaint(node, "ended before it was ready"))
            if time.monotonic() > deadline:
                raise ServerFailed(self._complaint(node, "does not respond"))
            time.sleep(pause)
            pause = min(pause * 1.3, 0.25)

    def _complaint(self, node: int, problem: str) -> str:
        daemon = self.daemons[node]
        return f"{self.name} on port {self.ports[node][0]} {problem}; last lines of {daemon.log}:\n{daemon.tail()}"

    def _record_ports(self) -> None:
        """Record the ports, which the data keep until they are wiped. Raises WrongUse if other ports are recorded."""
        self.base.mkdir(parents=True, exist_ok=True)
        recorded = recorded_ports(self.base)
        if recorded and recorded != self._flat_ports:
            raise WrongUse(
                f"the data in {self.base} belong to ports {recorded}, not {self._flat_ports}: wipe them first"
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
    """Return the ports that the data below `base` belong to, or None if there are no data."""
    path = base / RECORD
    return list(json.loads(path.read_text())) if path.exists() else None
