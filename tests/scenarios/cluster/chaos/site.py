"""The servers of one run, which no other run uses, and a separate connection from each seat to each of them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from servers import Etcd, Kafka, Postgres, Redis, Server, free_port, free_ports
from tests.scenarios.cluster.cluster import Servers
from tests.support.tcp_cutter import HOST, Cutter

Wires = dict[str, Cutter]
"""The connections of one seat to each server, by the server's name."""


class Site:
    """The servers of a run, until it is left; their logs stay in `folder`."""

    def __init__(self, folder: Path, seats: Sequence[str]) -> None:
        self.folder = folder
        self.seats = seats
        self._doors = {seat: (free_port(), free_port()) for seat in seats}
        """Where the broker listens for a seat, and the address that it advertises: the port of the seat's cutter."""
        base = folder / "servers"
        self.postgres = Postgres(base / "postgres", free_port(), throwaway=True)
        self.redis = Redis(base / "redis", free_port(), throwaway=True)
        self.kafka = self._kafka(base / "kafka")
        self.etcd = Etcd(base / "etcd", free_ports(2), nodes=1, throwaway=True)
        self.servers: dict[str, Server] = {
            server.name: server for server in (self.postgres, self.redis, self.kafka, self.etcd)
        }
        self.wires: dict[str, Wires] = {}

    @asynccontextmanager
    async def up(self) -> AsyncIterator["Site"]:
        try:
            await asyncio.to_thread(self._for_each, lambda server: server.start())
            async with AsyncExitStack() as stack:
                for seat in self.seats:
                    self.wires[seat] = {
                        name: await stack.enter_async_context(cutter) for name, cutter in self._new_wires(seat).items()
                    }
                yield self
        finally:
            await asyncio.to_thread(self._for_each, self._put_away)

    @property
    def directly(self) -> Servers:
        return Servers(self.postgres.url, self.redis.url, self.kafka.url, self.etcd.url)

    def seen_from(self, seat: str) -> Servers:
        ports = {name: cutter.port for name, cutter in self.wires[seat].items()}
        return Servers(
            postgres=f"postgresql://postgres@{HOST}:{ports['postgres']}/{self.postgres.database}",
            redis=f"redis://{HOST}:{ports['redis']}/0",
            kafka=f"{HOST}:{ports['kafka']}",
            etcd=f"http://{HOST}:{ports['etcd']}",
        )

    def _new_wires(self, seat: str) -> Wires:
        behind, before = self._doors[seat]
        return {
            "postgres": Cutter(HOST, self.postgres.port),
            "redis": Cutter(HOST, self.redis.port),
            "kafka": Cutter(HOST, behind, before),
            "etcd": Cutter(HOST, self.etcd.ports[0][0]),
        }

    def _kafka(self, base: Path) -> Kafka:
        """Start Kafka with a listener for each cutter: clients connect to the address that the broker advertises."""
        client, controller = ports = free_ports(2)
        doors = {f"SEAT{number}": door for number, door in enumerate(self._doors.values())}
        listeners = {"CLIENT": client} | {name: behind for name, (behind, _) in doors.items()}
        advertised = {"CLIENT": client} | {name: before for name, (_, before) in doors.items()}
        settings = {
            "listeners": ",".join(_addresses(listeners | {"CONTROLLER": controller})),
            "advertised.listeners": ",".join(_addresses(advertised)),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*listeners, "CONTROLLER")),
            "num.network.threads": "1",
        }
        return Kafka(base, ports, nodes=1, settings=settings, throwaway=True)

    def _for_each(self, act: Callable[[Server], object]) -> None:
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(act, self.servers.values()))

    def _put_away(self, server: Server) -> None:
        log = server.daemons[0].log
        if log.exists():
            shutil.copy(log, self.folder / f"{server.name}.log")
        server.wipe()


def _addresses(ports: dict[str, int]) -> list[str]:
    return [f"{name}://{HOST}:{port}" for name, port in ports.items()]
