"""The servers that this project uses: its own, with their data and ports, or external ones that the user names."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from servers import answers
from servers.answers import Address
from servers.errors import ServerFailed, WrongUse
from servers.etcd import Etcd
from servers.kafka import Kafka
from servers.ports import HOST, is_free
from servers.postgres import Postgres
from servers.redis import Redis
from servers.server import Server, recorded_ports
from servers.versions import pins

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "var" / "servers"
VARIABLES = {
    "postgres": "NOONDAY_POSTGRES_URL",
    "redis": "NOONDAY_REDIS_URL",
    "etcd": "NOONDAY_ETCD_URLS",
    "kafka": "NOONDAY_KAFKA_SERVERS",
}
STANDARD_PORTS = {"postgres": 5432, "redis": 6379, "etcd": 2379, "kafka": 9092}
CHECKS = {
    "postgres": answers.postgres,
    "redis": answers.redis,
    "etcd": answers.etcd,
    "kafka": answers.kafka_greets,
}
NODE_STEP = 10
CLONE_STEP = 100  # added to the pinned ports while another clone on this machine uses them


@dataclass(frozen=True)
class ExternalServer:
    """A server that the user runs. The project only checks whether it responds."""

    name: str
    url: str

    @property
    def addresses(self) -> list[Address]:
        return [_address(self.name, part.strip()) for part in self.url.split(",") if part.strip()]

    @property
    def masked_url(self) -> str:
        return re.sub(r":[^:/@]+@", ":***@", self.url)

    def answers(self) -> bool:
        return any(CHECKS[self.name](address) for address in self.addresses)


def servers(
    names: Sequence[str], nodes: int | None = None, env: Mapping[str, str] = os.environ
) -> list[Server | ExternalServer]:
    """Return the given servers: external ones if the environment names them, else our own."""
    return [external_server(name, env) or own_server(name, nodes) for name in names]


def urls(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables with the URLs of all servers, running or not."""
    return {VARIABLES[server.name]: server.url for server in servers(list(VARIABLES), env=env)}


def own_server(name: str, nodes: int | None = None) -> Server:
    """Return our own server, with the ports and the number of nodes of its data, if there are any."""
    base = FOLDER / name
    ports_per_node = len(pins()[name].ports)
    recorded = recorded_ports(base)
    recorded_nodes = len(recorded) // ports_per_node if recorded else None
    node_count = 1 if name in ("postgres", "redis") else nodes or recorded_nodes or 1
    if recorded_nodes and node_count != recorded_nodes:
        raise WrongUse(
            f"{name} has data of {recorded_nodes} node(s), not {node_count}: "
            f"delete them with scripts/servers wipe --only {name}"
        )
    ports = recorded or _choose_ports(name, node_count)
    if name == "postgres":
        return Postgres(base, ports[0])
    if name == "redis":
        return Redis(base, ports[0])
    if name == "etcd":
        return Etcd(base, ports, node_count)
    return Kafka(base, ports, node_count, heap="1g" if node_count == 1 else "512m")


def external_server(name: str, env: Mapping[str, str]) -> ExternalServer | None:
    """Find the external server that the environment names.

    Addresses of our own server do not count, because the environment may contain the output of `env`.
    """
    url = env.get(VARIABLES[name], "").strip()
    if not url:
        return None
    server = ExternalServer(name, url)
    own = _possible_addresses(own_server(name))
    return None if all((address.host, address.port) in own for address in server.addresses) else server


def _possible_addresses(server: Server) -> set[tuple[str, int]]:
    """Return every address that the server may have, with one or three nodes."""
    first = server.ports[0][0]
    ports = {port for node in server.ports for port in node} | {first + NODE_STEP * node for node in range(3)}
    return {(host, port) for host in (HOST, "localhost") for port in ports}


def _choose_ports(name: str, nodes: int) -> list[int]:
    for clone in range(20):
        shifts = [clone * CLONE_STEP + node * NODE_STEP for node in range(nodes)]
        ports = [port + shift for shift in shifts for port in pins()[name].ports]
        if all(is_free(port) for port in ports):
            return ports
    raise ServerFailed(f"{name}: found no free ports above {pins()[name].ports}")


def _address(name: str, url: str) -> Address:
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        port = parts.port or STANDARD_PORTS[name]
    except ValueError:
        raise WrongUse(f"{VARIABLES[name]}: the port of {parts.hostname} is not a number") from None
    tls = parts.scheme in ("rediss", "https")
    return Address(parts.hostname or HOST, port, tls, unquote(parts.username or ""), unquote(parts.password or ""))
