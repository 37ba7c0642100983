"""The servers of this project: where their data are, on which ports they listen, which of them are the user's own."""

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
ASK = {
    "postgres": answers.postgres,
    "redis": answers.redis,
    "etcd": answers.etcd,
    "kafka": answers.kafka_greets,
}
NODE_STEP = 10
CLONE_STEP = 100  # when another clone on this machine has the pinned ports, ours are so much higher


@dataclass(frozen=True)
class Theirs:
    """A server that the user runs: we only ask whether it answers."""

    name: str
    url: str

    @property
    def addresses(self) -> list[Address]:
        return [_address(self.name, part.strip()) for part in self.url.split(",") if part.strip()]

    @property
    def masked_url(self) -> str:
        return re.sub(r":[^:/@]+@", ":***@", self.url)

    def answers(self) -> bool:
        return any(ASK[self.name](address) for address in self.addresses)


def servers(
    names: Sequence[str], nodes: int | None = None, env: Mapping[str, str] = os.environ
) -> list[Server | Theirs]:
    """Each named server: ours, or the user's own if the environment says where that is."""
    return [theirs(name, env) or ours(name, nodes) for name in names]


def urls(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which our programs find the servers, whether they run or not."""
    return {VARIABLES[server.name]: server.url for server in servers(list(VARIABLES), env=env)}


def ours(name: str, nodes: int | None = None) -> Server:
    """Our own server, with the ports and the number of nodes that its data have, or will have."""
    base = FOLDER / name
    each = len(pins()[name].ports)
    recorded = recorded_ports(base)
    found = len(recorded) // each if recorded else None
    wanted = 1 if name in ("postgres", "redis") else nodes or found or 1
    if found and wanted != found:
        raise WrongUse(f"{name} has data of {found} node(s), not {wanted}: scripts/servers wipe --only {name}")
    ports = recorded or _choose_ports(name, wanted)
    if name == "postgres":
        return Postgres(base, ports[0])
    if name == "redis":
        return Redis(base, ports[0])
    if name == "etcd":
        return Etcd(base, ports, wanted)
    return Kafka(base, ports, wanted, heap="1g" if wanted == 1 else "512m")


def theirs(name: str, env: Mapping[str, str]) -> Theirs | None:
    """The user's own server. Our own address does not count: the environment may hold the output of `env`."""
    url = env.get(VARIABLES[name], "").strip()
    if not url:
        return None
    named = Theirs(name, url)
    mine = _could_be(ours(name))
    return None if all((address.host, address.port) in mine for address in named.addresses) else named


def _could_be(server: Server) -> set[tuple[str, int]]:
    """Every address of the server, with whatever number of nodes."""
    first = server.ports[0][0]
    ports = {port for node in server.ports for port in node} | {first + NODE_STEP * node for node in range(3)}
    return {(host, port) for host in (HOST, "localhost") for port in ports}


def _choose_ports(name: str, nodes: int) -> list[int]:
    for clone in range(20):
        shifts = [clone * CLONE_STEP + node * NODE_STEP for node in range(nodes)]
        ports = [port + shift for shift in shifts for port in pins()[name].ports]
        if all(is_free(port) for port in ports):
            return ports
    raise ServerFailed(f"{name}: no free ports from {pins()[name].ports} on")


def _address(name: str, url: str) -> Address:
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        port = parts.port or STANDARD_PORTS[name]
    except ValueError:
        raise WrongUse(f"{VARIABLES[name]}: the port of {parts.hostname} is not a number") from None
    tls = parts.scheme in ("rediss", "https")
    return Address(parts.hostname or HOST, port, tls, unquote(parts.username or ""), unquote(parts.password or ""))
