"""A separate Redis that tests flush, freeze and restart, and a connection to it that can be cut."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from noonday.drivers.redis.connection import Connection, connect
from servers import Redis as RedisServer
from servers import free_port
from tests.support.clock import ManualClock
from tests.support.tcp_cutter import HOST, Cutter

SOON_SEC = 0.3
"""The time limit of calls to a server that does not answer, in seconds."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), free_port()) as server:
        yield server


@pytest.fixture
async def cutter(server: RedisServer) -> AsyncIterator[Cutter]:
    async with Cutter(HOST, server.port) as cutter:
        yield cutter


@pytest.fixture
async def connection(server: RedisServer) -> AsyncIterator[Connection]:
    connection = connect(server.url)
    yield connection
    await connection.close()


@pytest.fixture
async def behind_cutter(cutter: Cutter) -> AsyncIterator[Connection]:
    connection = connect(f"redis://{HOST}:{cutter.port}", timeout_sec=SOON_SEC)
    yield connection
    await connection.close()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid4().hex}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
