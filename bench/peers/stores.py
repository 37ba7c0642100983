"""A store of its own for each repetition: a database, a Redis, or a directory."""

import asyncio
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import BenchFailed
from bench.peers.catalog import Peer
from bench.servers import SERVERS, find_servers, processes_of

REDIS_READY_WITHIN_SEC = 20
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Store:
    place: str
    """A URL or a directory: what the program finds in BENCH_STORE."""
    servers: dict[str, list[int]] = field(default_factory=dict)
    """Processes whose CPU time counts."""
    environment: dict[str, str] = field(default_factory=dict)


def open_store(peer: Peer, directory: Path, environ: Mapping[str, str]) -> AbstractContextManager[Store]:
    """Make an empty store, and remove it afterwards. Raises BenchFailed."""
    match peer.store:
        case "postgres":
            return _database(environ)
        case "redis":
            return _redis(directory)
        case "cluster":
            return _cluster(directory, environ)
        case "directory":
            return _directory(directory)


@contextmanager
def _directory(directory: Path) -> Iterator[Store]:
    place = directory / f"store-{next(_numbers)}"
    place.mkdir()
    try:
        yield Store(str(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _cluster(directory: Path, environ: Mapping[str, str]) -> Iterator[Store]:
    """Servers that run already; the program makes a schema, topics and keys of its own there."""
    named = find_servers(environ)
    with _directory(directory) as store:
        yield Store(store.place, processes_of(named), named)


@contextmanager
def _database(environ: Mapping[str, str]) -> Iterator[Store]:
    variable = next(server.variable for server in SERVERS if server.name == "postgres")
    url = find_servers(environ)[variable]
    name = f"noonday_peer_{os.getpid()}_{next(_numbers)}"
    _execute(url, f'CREATE DATABASE "{name}"')
    try:
        yield Store(urlsplit(url)._replace(path=f"/{name}").geturl(), processes_of({variable: url}))
    finally:
        _execute(url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _execute(url: str, statement: str) -> None:
    # The client of PostgreSQL is an extra: peers that need no database need none of it.
    import asyncpg

    async def execute() -> None:
        async with asyncio.timeout(60):
            connection: Any = await asyncpg.connect(url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

    try:
        asyncio.run(execute())
    except (asyncpg.PostgresError, OSError, TimeoutError) as error:
        raise BenchFailed(f"PostgreSQL refuses {statement!r}: {error!r}") from error


@contextmanager
def _redis(directory: Path) -> Iterator[Store]:
    """A Redis of our own, so that nobody else's data is touched."""
    binary = shutil.which("redis-server")
    if not binary:
        raise BenchFailed("redis-server is not on the PATH: `scripts/servers install` installs it")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with _directory(directory) as store, (directory / "redis.log").open("ab") as log:
        options = {
            "bind": "127.0.0.1",
            "port": port,
            "dir": store.place,
            "appendonly": "yes",
            "appendfsync": "everysec",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        process = subprocess.Popen([binary, *words], stdout=log, stderr=log, start_new_session=True)
        try:
            _await_redis(port, process)
            yield Store(f"redis://127.0.0.1:{port}/0", {"redis": [process.pid]})
        finally:
            process.kill()
            process.wait()


def _await_redis(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + REDIS_READY_WITHIN_SEC
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchFailed(f"redis-server did not answer within {REDIS_READY_WITHIN_SEC} s")
        time.sleep(0.02)
