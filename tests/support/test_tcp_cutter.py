import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from servers import free_ports
from tests.support.eventually import eventually
from tests.support.tcp_cutter import HOST, Cutter, tell

SOON_SEC = 0.1
"""How long a test listens for data that must not arrive."""


class Server:
    """A server that repeats what it receives, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.heard += data
            writer.write(data)
        writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, words: bytes) -> None:
        self.writer.write(words)

    async def hears(self, words: bytes) -> bool:
        async with asyncio.timeout(60):
            return await self.reader.readexactly(len(words)) == words

    async def hears_nothing(self) -> bool:
        try:
            async with asyncio.timeout(SOON_SEC):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False

    async def is_cut_short(self) -> bool:
        try:
            async with asyncio.timeout(60):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.answer, HOST, 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


@pytest.fixture
async def cutter(server: Server) -> AsyncIterator[Cutter]:
    async with Cutter(HOST, server.port) as cutter:
        yield cutter


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


async def test_everything_gets_through_at_first(cutter: Cutter) -> None:
    much = bytes(range(256)) * 4096
    async with connected(cutter.port) as client:
        client.say(much)
        assert await client.hears(much)


async def test_end_of_one_side_is_forwarded_to_the_other(cutter: Cutter) -> None:
    async with connected(cutter.port) as client:
        client.say(b"last words")
        client.writer.write_eof()
        assert await client.hears(b"last words")
        assert await client.is_cut_short()
    await eventually(lambda: cutter.status == "open 0")


@pytest.mark.slow
async def test_a_cut_swallows_both_ways_and_keeps_the_connection(cutter: Cutter, server: Server) -> None:
    async with connected(cutter.port) as client:
        client.say(b"before")
        assert await client.hears(b"before")
        await cutter.cut()
        client.say(b"lost")
        assert await client.hears_nothing()
        assert server.heard == b"before"
        assert cutter.status == "cut 1"


@pytest.mark.slow
async def test_cut_towards_the_server_forwards_its_answers(cutter: Cutter, server: Server) -> None:
    async with connected(cutter.port) as client:
        client.say(b"before")
        await eventually(lambda: server.heard == b"before")
        await cutter.cut(towards="server")
        assert await client.hears(b"before")
        client.say(b"lost")
        assert await client.hears_nothing()
        assert server.heard == b"before"


@pytest.mark.slow
async def test_cut_towards_the_client_forwards_its_requests(cutter: Cutter, server: Server) -> None:
    async with connected(cutter.port) as client:
        client.say(b"before")
        assert await client.hears(b"before")
        await cutter.cut(towards="client")
        client.say(b"after")
        await eventually(lambda: server.heard == b"beforeafter")
        assert await client.hears_nothing()
        assert cutter.status == "cut client 1"


@pytest.mark.slow
async def test_a_connection_made_through_a_cut_is_accepted_and_silent(cutter: Cutter, server: Server) -> None:
    await cutter.cut(towards="client")
    async with connected(cutter.port) as client:
        client.say(b"lost")
        assert await client.hears_nothing()
        assert server.heard == b""
        await cutter.heal()
        assert await client.is_cut_short()


@pytest.mark.slow
async def test_end_of_one_side_is_not_forwarded_through_a_cut(cutter: Cutter) -> None:
    async with connected(cutter.port) as client:
        client.say(b"before")
        assert await client.hears(b"before")
        await cutter.cut()
        client.writer.write_eof()
        assert await client.hears_nothing()


@pytest.mark.slow
async def test_healing_resets_only_connections_that_lost_bytes(cutter: Cutter) -> None:
    async with connected(cutter.port) as talker, connected(cutter.port) as listener:
        for client in (talker, listener):
            client.say(b"before")
            assert await client.hears(b"before")
        await cutter.cut()
        talker.say(b"lost")
        assert await talker.hears_nothing()
        await cutter.heal()
        assert await talker.is_cut_short()
        listener.say(b"still here")
        assert await listener.hears(b"still here")


async def test_refusing_resets_all_connections_and_accepts_none_until_healed(cutter: Cutter) -> None:
    async with connected(cutter.port) as client:
        await cutter.refuse()
        assert await client.is_cut_short()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, cutter.port)
    assert cutter.status == "refuse 0"
    await cutter.heal()
    async with connected(cutter.port) as client:
        client.say(b"again")
        assert await client.hears(b"again")


async def test_without_a_server_connections_are_reset() -> None:
    async with Cutter(HOST, free_ports(1)[0]) as cutter, connected(cutter.port) as client:
        assert await client.is_cut_short()


@pytest.mark.slow
async def test_as_a_process_of_its_own_it_obeys_its_control_port(server: Server) -> None:
    listen, control = free_ports(2)
    words = ["--listen", str(listen), "--upstream", f"{HOST}:{server.port}", "--control", str(control)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.tcp_cutter", *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    try:
        async with connected(listen) as client:
            client.say(b"hello")
            assert await client.hears(b"hello")
            assert await tell(control, "status") == "open 1"
            assert await tell(control, "cut server") == "cut server 1"
            assert await tell(control, "refuse") == "refuse 0"
            assert await tell(control, "heal") == "open 0"
            assert await tell(control, "cut") == "cut 0"
            assert await tell(control, "cut sideways") == "say: cut [server|client], refuse, heal or status"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("turns", range(8))
async def test_connection_accepted_just_before_the_end_is_dropped(server: Server, turns: int) -> None:
    async with Cutter(HOST, server.port) as cutter:
        client = socket.create_connection((HOST, cutter.port))
        for _ in range(turns):
            await asyncio.sleep(0)
    with client:
        client.setblocking(False)
        with contextlib.suppress(ConnectionError):
            assert client.recv(1) == b""
    assert cutter.status == "refuse 0"
