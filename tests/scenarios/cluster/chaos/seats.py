"""The seats of a cluster. A seat replaces its process after each end, as a supervisor would."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass

from tests.scenarios.cluster.chaos.attempts import Deploy
from tests.scenarios.cluster.chaos.site import Wires
from tests.scenarios.cluster.cluster import Cluster, Servers
from tests.scenarios.cluster.history import FROZEN, Fault
from tests.scenarios.cluster.processes import Process
from tests.scenarios.server_run import now_ms
from tests.support.tcp_cutter import Side

CHECK_SEC = 0.1
AGAIN_SEC = 1.0
"""Seconds for which a seat is empty after its process ended by itself."""
END_SEC = 90.0
"""Seconds that a process may take to stop, whichever servers it cannot reach."""
OUT_OF_TIME = "Timeout ("
"""The beginning of the output of a process that reaches its stop deadline and ends with exit code 1."""
CONCURRENCY = 50


@dataclass(frozen=True)
class Ended:
    """A process that ended without being killed, and its last output."""

    name: str
    process: str
    at_ms: int
    code: int
    begun: bool
    """Whether it had begun its work."""
    last_words: str
    at_deadline: bool = False
    """Whether it was stopped, and reached its stop deadline."""


class Seat:
    """A seat: its name, its present process, and its connections to the servers."""

    def __init__(self, name: str, cluster: Cluster, servers: Servers, wires: Wires) -> None:
        self.name = name
        self.kind = name.split()[0]
        self.wires = wires
        self.ended: list[Ended] = []
        self.deploys: list[Deploy] = []
        self._cluster = cluster
        self._servers = servers
        self._cuts: dict[str, list[Fault]] = {}
        """The faults of present cuts, by server."""
        self._frozen: Fault | None = None
        self._asked_to_end: Process | None = None
        self._empty_until = 0.0
        self.process = self._launch()

    def _launch(self) -> Process:
        if self.kind == "worker":
            process = self._cluster.work("p", "webhooks", concurrency=CONCURRENCY, servers=self._servers)
        else:
            process = self._cluster.serve(self.kind, servers=self._servers)
        for server in self._cuts:
            self._note_cut(server, process)
        return process

    async def keep(self) -> None:
        """Replace the process whenever it ends. Never returns."""
        while True:
            await asyncio.sleep(CHECK_SEC)
            code = self.process.ended_with
            if code is None:
                _ = self.process.pid  # the own process of a worker is known only after it was looked up
                continue
            if self._empty_until == 0.0:
                self._note_end(code)
                self._empty_until = time.monotonic() + AGAIN_SEC
            if time.monotonic() >= self._empty_until:
                self._empty_until = 0.0
                self.process = self._launch()

    def _note_end(self, code: int) -> None:
        process = self.process
        begun = process.url is not None
        if process is self._asked_to_end and (code == 0 or not begun):
            return
        output = process.output.strip().splitlines()
        at_deadline = process is self._asked_to_end and any(line.startswith(OUT_OF_TIME) for line in output)
        self.ended.append(
            Ended(process.name, str(process.pid), now_ms(), code, begun, "".join(output[-1:]), at_deadline)
        )

    # -- faults --------------------------------------------------------------------------------------------------------

    def kill(self, empty_sec: float) -> bool:
        """Kill the process. Each method of this section returns whether it could act."""
        if not self.process.is_alive:
            return False
        self._empty_until = time.monotonic() + empty_sec + CHECK_SEC
        self._cluster.kill(self.process)
        return True

    async def freeze(self, lasts_sec: float) -> bool:
        process = self.process
        if not process.is_alive or self._frozen is not None:
            return False
        self._cluster.freeze(process)
        self._frozen = fault = self._cluster.faults[-1]
        assert fault.kind == FROZEN
        try:
            await asyncio.sleep(lasts_sec)
        finally:
            fault.until_ms = now_ms()
            self._frozen = None
            process.wake()
        return True

    async def stop(self) -> bool:
        """Stop the process once, and wait until it has ended, or until another fault kills it.

        A second SIGTERM would kill a worker.
        """
        process = self.process
        if not process.is_alive or process is self._asked_to_end:
            return False
        self._asked_to_end = process
        deploy = Deploy(str(process.pid), now_ms())
        self.deploys.append(deploy)
        process.stop()
        deadline = time.monotonic() + END_SEC
        while process.is_alive and time.monotonic() < deadline:
            await asyncio.sleep(CHECK_SEC)
        deploy.ended_ms = now_ms()
        if process.is_alive:
            self.ended.append(
                Ended(
                    process.name,
                    str(process.pid),
                    now_ms(),
                    -1,
                    True,
                    f"stopped, and still there after {END_SEC:g} s",
                )
            )
            self.kill(0.0)
        return True

    async def cut(self, server: str, towards: Side | None, lasts_sec: float) -> bool:
        return await self._severed(server, lasts_sec, self.wires[server].cut(towards))

    async def refuse(self, server: str, lasts_sec: float) -> bool:
        return await self._severed(server, lasts_sec, self.wires[server].refuse())

    async def _severed(self, server: str, lasts_sec: float, doing: Coroutine[None, None, None]) -> bool:
        if server in self._cuts:
            doing.close()
            return False
        self._cuts[server] = []
        self._note_cut(server, self.process)
        try:
            await doing
            await asyncio.sleep(lasts_sec)
        finally:
            await self.wires[server].heal()
            for fault in self._cuts.pop(server):
                fault.until_ms = now_ms()
        return True

    def _note_cut(self, server: str, process: Process) -> None:
        fault = Fault(f"cut off from {server}", str(process.pid), now_ms())
        self._cuts[server].append(fault)
        self._cluster.faults.append(fault)
