"""Clients that send too much, too slowly, or on too many connections, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send

from noonday.wiring.connections import (
    BODY_SEC,
    HEADER_BYTES,
    HEADER_SEC,
    KEEP_ALIVE_SEC,
    RESERVE,
    STALLED_SEC,
    Connections,
    ConnectionState,
    raise_descriptor_limit,
)
from noonday.wiring.listening import answering, listen
from tests.support.eventually import eventually

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
READY = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
WITHIN_SEC = 60


@dataclass
class Site:
    """A server whose answers wait until the test releases them."""

    connections: Connections
    port: int = 0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    body: bytes = b"ok"
    clients: list[Stream] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/early":
            await self._answer(send)
            return
        while (await receive()).get("more_body"):
            pass
        if scope["path"] not in ("/readyz", "/large"):
            await self.may_answer.wait()
        await self._answer(send)

    async def _answer(self, send: Send) -> None:
        size = b"%d" % len(self.body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": self.body})

    async def connect(self, sent: bytes = b"") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append((reader, writer))
        writer.write(sent)
        return reader, writer

    async def ask(self, request: bytes = READY) -> bytes:
        reader, _ = await self.connect(request)
        async with asyncio.timeout(WITHIN_SEC):
            return await reader.read()

    async def is_closed(self, client: Stream) -> bytes:
        """Return the output of the server before it closed the connection."""
        async with asyncio.timeout(WITHIN_SEC):
            try:
                return await client[0].read()
            except ConnectionError:
                return b""

    def later(self, seconds: float) -> None:
        self.connections.close_late(asyncio.get_running_loop().time() + seconds)

    async def until(self, awaits: ConnectionState) -> None:
        """Wait until the only connection is in this state."""
        await eventually(lambda: [each.awaits for each in self.connections._open] == [awaits], WITHIN_SEC)


@asynccontextmanager
async def site(most: int) -> AsyncIterator[Site]:
    made = Site(Connections(most))
    with listen("127.0.0.1", 0) as listener:
        made.port = listener.getsockname()[1]
        async with answering(made, listener, made.connections):
            try:
                yield made
            finally:
                made.may_answer.set()
                for _, writer in made.clients:
                    writer.transport.abort()


@pytest.fixture
async def small() -> AsyncIterator[Site]:
    async with site(4) as made:
        yield made


@pytest.mark.slow
async def test_a_thousand_half_open_connections_do_not_silence_readiness() -> None:
    raise_descriptor_limit()
    async with site(1_000) as crowded:
        silent = [await crowded.connect() for _ in range(700)]
        half = [await crowded.connect(b"GET /readyz HTTP/1.1\r\nx: ") for _ in range(700)]
        assert (await crowded.ask()).startswith(b"HTTP/1.1 200")
        assert len(crowded.connections) <= 1_000
        assert await crowded.is_closed(silent[0]) == b""
        assert not half[-1][0].at_eof()


@pytest.mark.slow
async def test_the_longest_waiting_connection_makes_room(small: Site) -> None:
    clients = [await small.connect() for _ in range(4)]
    assert (await small.ask()).endswith(b"ok")
    assert await small.is_closed(clients[0]) == b""
    assert [client[0].at_eof() for client in clients[1:]] == [False] * 3


@pytest.mark.slow
async def test_requests_being_answered_are_not_closed_and_health_is_answered_beside_them(small: Site) -> None:
    busy = [await small.connect(b"GET /work HTTP/1.1\r\nhost: x\r\n\r\n") for _ in range(4)]

    await eventually(
        lambda: [each.awaits for each in small.connections._open] == [ConnectionState.ANSWER] * 4, WITHIN_SEC
    )
    assert (await small.ask()).startswith(b"HTTP/1.1 200")
    assert (await small.ask(READY.replace(b"/readyz", b"/work"))).startswith(b"HTTP/1.1 503")
    small.may_answer.set()
    for reader, _ in busy:
        async with asyncio.timeout(WITHIN_SEC):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_beyond_the_reserve_connections_are_closed_at_once(small: Site) -> None:
    for _ in range(4):
        await small.connect(b"GET /work HTTP/1.1\r\nhost: x\r\n\r\n")
    for _ in range(RESERVE):
        await small.connect(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")

    await eventually(
        lambda: [each.awaits for each in small.connections._open] == [ConnectionState.ANSWER] * (4 + RESERVE),
        WITHIN_SEC,
    )
    assert await small.is_closed(await small.connect(READY)) == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    "header",
    [
        b"x: " + b"a" * 1_000_000,
        b"".join(b"x%d: y\r\n" % number for number in range(20_000)),
        b"a" * 1_000_000,
    ],
    ids=["one value", "many fields", "one name"],
)
async def test_a_header_that_is_too_large_is_refused_before_it_has_arrived(small: Site, header: bytes) -> None:
    reader, writer = await small.connect(b"GET /readyz HTTP/1.1\r\n" + header)
    answer = await small.is_closed((reader, writer))
    # A client that is still sending may see the connection end instead of the answer.
    assert not answer or answer.startswith(b"HTTP/1.1 431")
    assert (await small.ask()).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_an_address_that_is_too_long_is_refused(small: Site) -> None:
    answer = await small.is_closed(await small.connect(b"GET /" + b"a" * 1_000_000))
    assert not answer.startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_a_large_header_within_the_limit_is_read(small: Site) -> None:
    header = b"x: " + b"a" * (HEADER_BYTES - 200) + b"\r\n"
    assert (await small.ask(READY.replace(b"host: x\r\n", b"host: x\r\n" + header))).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
async def test_a_header_that_does_not_end_is_given_up(small: Site) -> None:
    client = await small.connect(b"GET /readyz HTTP/1.1\r\n")
    await small.until(ConnectionState.HEADER)
    small.later(HEADER_SEC - 1)
    client[1].write(b"x: y\r\n")
    await asyncio.sleep(0)
    assert len(small.connections) == 1
    small.later(HEADER_SEC + 1)
    assert await small.is_closed(client) == b""


@pytest.mark.slow
async def test_a_connection_without_a_request_is_kept_as_long_as_any_idle_one(small: Site) -> None:
    client = await small.connect()
    await small.until(ConnectionState.REQUEST)
    small.later(KEEP_ALIVE_SEC - 1)
    assert len(small.connections) == 1
    small.later(KEEP_ALIVE_SEC + 1)
    assert await small.is_closed(client) == b""


@pytest.mark.slow
async def test_a_body_that_does_not_come_is_given_up_and_a_slow_one_is_not(small: Site) -> None:
    head = b"POST /readyz HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n"
    client = await small.connect(head)
    await small.until(ConnectionState.BODY)
    client[1].write(b"a" * 5_000_000)
    await client[1].drain()

    await eventually(lambda: [each._body_bytes for each in small.connections._open] == [5_000_000], WITHIN_SEC)
    small.later(BODY_SEC + 200)
    assert len(small.connections) == 1
    small.later(BODY_SEC + 400)
    assert await small.is_closed(client) == b""


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_given_up() -> None:
    async with site(4) as large:
        large.body = b"a" * 50_000_000
        with socket.create_connection(("127.0.0.1", large.port)) as silent:
            silent.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            sizes = list[int]()

            def stands_still() -> bool:
                sizes.append(sum(each.transport.get_write_buffer_size() for each in large.connections._open))
                return len(sizes) > 5 and sizes[-1] > 0 and len(set(sizes[-5:])) == 1

            await eventually(stands_still, WITHIN_SEC)
            large.later(0)
            large.later(STALLED_SEC + KEEP_ALIVE_SEC)
            large.later(2 * (STALLED_SEC + KEEP_ALIVE_SEC))
            assert len(large.connections) == 0


@pytest.mark.slow
async def test_requests_follow_each_other_on_one_connection(small: Site) -> None:
    keep = READY.replace(b"connection: close\r\n", b"")
    reader, writer = await small.connect()
    for sent in (keep, keep + keep):
        writer.write(sent)
        async with asyncio.timeout(WITHIN_SEC):
            for _ in range(sent.count(b"GET")):
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    await small.until(ConnectionState.REQUEST)


@pytest.mark.slow
async def test_an_answer_before_the_whole_body_leaves_the_connection_usable(small: Site) -> None:
    reader, writer = await small.connect(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n")
    async with asyncio.timeout(WITHIN_SEC):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"a" * 200_000 + READY)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")


def test_the_limit_of_open_files_is_raised_and_heeded() -> None:
    files = raise_descriptor_limit()
    assert Connections.within_descriptor_limit(10).most == 10
    assert Connections.within_descriptor_limit(10**9).most < files
