"""The exchange of the command line and that of the SDK: both do the same."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from noonday.cli.exchange import BlockingExchange
from noonday.sdk.exchange import ConnectionBroken, HttpExchange, NewExchange, Response, SessionExchange
from tests.support.eventually import eventually
from tests.webhooks.receiver import self_signed

LONG_SEC = 60.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """A server that answers each request with given bytes, and keeps what it was sent."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        """None: it never answers."""
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await _head_of(reader):
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    await reader.read()
                    self.gone.set()
                    return
                writer.write(answer)
                await writer.drain()
                if b"Connection: close" in answer:
                    return
        finally:
            writer.close()


async def _head_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


@asynccontextmanager
async def listening(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    yield f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    listener.close()


@pytest.fixture(params=[BlockingExchange, SessionExchange])
def new_exchange(request: pytest.FixtureRequest) -> NewExchange:
    made: NewExchange = request.param
    return made


@pytest.fixture
async def exchange(new_exchange: NewExchange) -> AsyncIterator[HttpExchange]:
    made = new_exchange(LONG_SEC)
    yield made
    await made.close()


async def test_a_request_has_its_path_headers_and_body(exchange: HttpExchange) -> None:
    server = Server(OK, OK)
    async with listening(server) as url:
        headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
        assert await exchange.send("POST", f"{url}/v1/jobs?a=b%2Fc&d=", headers, b'{"n":1}') == Response(
            200, "OK", None, b"{}"
        )
        await exchange.send("DELETE", f"{url}/v1/jobs/%2E%2E", {}, None)
        await exchange.close()
    first, second = server.requests
    assert first.startswith(b"POST /v1/jobs?a=b%2Fc&d= HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t\r\n" in first
    assert first.endswith(b'\r\n\r\n{"n":1}')
    assert second.startswith(b"DELETE /v1/jobs/%2E%2E HTTP/1.1\r\n")
    assert server.connections == 1


async def test_a_redirect_is_returned_and_not_followed(exchange: HttpExchange) -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: https://login.example\r\nContent-Length: 0\r\n\r\n"
    async with listening(Server(answer)) as url:
        response = await exchange.send("GET", f"{url}/", {}, None)
        await exchange.close()
    assert (response.status, response.reason, response.location) == (302, "Found", "https://login.example")


async def test_requests_at_the_same_time_use_connections_of_their_own(exchange: HttpExchange) -> None:
    server = Server(None, OK)
    async with listening(server) as url:
        waiting = asyncio.create_task(exchange.send("GET", f"{url}/slow", {}, None))
        await eventually(lambda: server.requests)
        assert (await exchange.send("GET", f"{url}/fast", {}, None)).status == 200
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await exchange.close()


async def test_a_request_that_is_given_up_closes_its_connection(exchange: HttpExchange) -> None:
    server = Server(None)
    async with listening(server) as url:
        waiting = asyncio.create_task(exchange.send("GET", f"{url}/", {}, None))
        await eventually(lambda: server.requests)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(server.gone.wait(), LONG_SEC)


async def test_a_response_that_takes_too_long_is_a_timeout(new_exchange: NewExchange) -> None:
    exchange, server = new_exchange(0.2), Server(None)
    async with listening(server) as url:
        with pytest.raises(TimeoutError):
            await exchange.send("GET", f"{url}/", {}, None)
        await asyncio.wait_for(server.gone.wait(), LONG_SEC)
        await exchange.close()


async def nobody_listens() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


async def test_a_refused_connection_is_broken(exchange: HttpExchange) -> None:
    with pytest.raises(ConnectionBroken, match=r"refused|[Cc]onnect"):
        await exchange.send("GET", await nobody_listens(), {}, None)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{}",
    ],
    ids=["short", "chunk"],
)
async def test_a_response_that_breaks_off_is_broken(exchange: HttpExchange, answer: bytes) -> None:
    async with listening(Server(answer)) as url:
        with pytest.raises(ConnectionBroken):
            await exchange.send("GET", f"{url}/", {}, None)
        await exchange.close()


async def test_a_server_that_does_not_speak_http_is_a_broken_connection() -> None:
    exchange = BlockingExchange(LONG_SEC)
    async with listening(Server(b"-ERR unknown command\r\nConnection: close\r\n\r\n")) as url:
        with pytest.raises(ConnectionBroken):
            await exchange.send("GET", f"{url}/", {}, None)
        await exchange.close()


async def test_a_certificate_must_be_trusted(exchange: HttpExchange, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with listening(Server(OK), tls) as url:
        with pytest.raises(ConnectionBroken, match="certificate"):
            await exchange.send("GET", f"{url}/", {}, None)


async def test_the_command_line_trusts_the_certificates_that_the_system_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    exchange = BlockingExchange(LONG_SEC)
    async with listening(Server(OK), tls) as url:
        assert (await exchange.send("GET", f"{url}/", {}, None)).status == 200
        await exchange.close()


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
async def test_no_proxy_of_the_environment_is_used(
    exchange: HttpExchange, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, await nobody_listens())
    async with listening(Server(OK)) as url:
        assert (await exchange.send("GET", f"{url}/", {}, None)).status == 200
        await exchange.close()
