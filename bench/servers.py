"""The servers of a cluster: where they are, and which processes they are if they run on this machine."""

import os
import shlex
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench import ROOT, BenchFailed
from bench.machine import listeners

ANSWERS_WITHIN_SEC = 3.0
LEASES = "NOONDAY_CLUSTER_LEASES"
HOW = "start them with `make servers` in a clone of the project, or name yours in that variable"


@dataclass(frozen=True)
class Server:
    name: str
    called: str
    variable: str
    usual_port: int


SERVERS = (
    Server("postgres", "PostgreSQL", "NOONDAY_POSTGRES_URL", 5432),
    Server("redis", "Redis", "NOONDAY_REDIS_URL", 6379),
    Server("kafka", "Kafka", "NOONDAY_KAFKA_SERVERS", 9092),
    Server("etcd", "etcd", "NOONDAY_ETCD_URLS", 2379),
)


def find_servers(environ: Mapping[str, str] = os.environ, root: Path | None = None) -> dict[str, str]:
    """The variables that name the servers: as they are set, else those of `scripts/servers` if this is a clone.

    Raises BenchFailed if one is not named, or does not answer.
    """
    needed = [server for server in SERVERS if server.name != "etcd" or environ.get(LEASES) != "redis"]
    named = {server.variable: environ[server.variable] for server in needed if environ.get(server.variable)}
    if len(named) < len(needed):
        named = _servers_of_clone(root or ROOT, environ) | named
    for server in needed:
        if server.variable not in named:
            raise BenchFailed(f"{server.variable} is not set, so {server.called} is not to be found: {HOW}")
        _must_answer(server, named[server.variable])
    return named


def processes_of(named: Mapping[str, str]) -> dict[str, list[int]]:
    """Of the servers that run on this machine, as far as we may see whose they are."""
    found = {}
    for server in (server for server in SERVERS if server.variable in named):
        ports = {port for host, port in addresses(named[server.variable], server.usual_port) if _is_here(host)}
        if pids := sorted({pid for port in ports for pid in listeners(port)}):
            found[server.name] = pids
    return found


def addresses(url: str, usual_port: int) -> Iterator[tuple[str, int]]:
    """Of a URL with one or several hosts, or of several such URLs with commas between them."""
    for part in url.split(","):
        place = urlsplit("//" + part.strip().rpartition("://")[2])
        yield place.hostname or "localhost", place.port or usual_port


def _servers_of_clone(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    script = root / "scripts" / "servers"
    if not script.is_file():
        return {}
    said = subprocess.run([script, "env"], capture_output=True, text=True, env=environ, check=False)
    if said.returncode:
        raise BenchFailed(f"scripts/servers does not tell where the servers are: {said.stderr.strip()}")
    words = (word for word in shlex.split(said.stdout) if "=" in word)
    return dict(word.split("=", 1) for word in words)


def _must_answer(server: Server, url: str) -> None:
    """One of several is enough."""
    complaints = []
    for place in addresses(url, server.usual_port):
        try:
            socket.create_connection(place, ANSWERS_WITHIN_SEC).close()
        except OSError as error:
            complaints.append(f"{place[0]}:{place[1]}: {error.strerror or error}")
        else:
            return
    raise BenchFailed(f"{server.called} does not answer ({'; '.join(complaints)}; {server.variable}): {HOW}")


def _is_here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1", socket.gethostname())
