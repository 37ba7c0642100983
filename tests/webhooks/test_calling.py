"""The results of calls to receivers that misbehave."""

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from noonday.model.errors import InvalidInput
from noonday.model.redaction import REDACTED
from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import MAX_BODY, ErrorKind, Exchange, WebhookClient, WebhookRequest
from noonday.webhooks.protocol import MAX_INFORMATIONAL
from tests.support.eventually import eventually
from tests.support.factories import TENANT
from tests.webhooks.receiver import Greeter, Receiver

LOOPBACK = Networks(["127.0.0.0/8"])
SOON_SEC = 0.5


def make_client() -> WebhookClient:
    return WebhookClient(LOOPBACK, SystemClock())


async def call(receiver: Receiver, path: str, timeout_sec: float = 10) -> Exchange:
    async with make_client() as client:
        return await client.call(TENANT, WebhookRequest("POST", receiver.url(path), {}, b"{}"), timeout_sec)


def kind_of(exchange: Exchange) -> ErrorKind | None:
    return None if exchange.error is None else exchange.error.kind


async def test_request_arrives_unchanged() -> None:
    request_headers = {"Content-Type": "application/json", "X-Team": "a", "User-Agent": "mine"}
    async with Receiver() as receiver, make_client() as client:
        url = receiver.url("/status/200?a=%2B&b=c+d")
        await client.call(TENANT, WebhookRequest("PUT", url, request_headers, b'{"a": 1}'), 10)
        assert receiver.heads[0].startswith("PUT /status/200?a=%2B&b=c+d HTTP/1.1\r\n")
        assert receiver.bodies == [b'{"a": 1}']
        assert {name: receiver.header(name) for name in request_headers} == request_headers
        assert receiver.header("accept-encoding") == "identity"


async def test_call_adds_only_required_headers() -> None:
    async with Receiver() as receiver:
        await call(receiver, "/status/200")
        names = {line.split(":")[0] for line in receiver.heads[0].split("\r\n")[1:] if line}
    assert names == {"Host", "User-Agent", "Accept-Encoding", "Accept", "Content-Length"}


async def test_exchange_redacts_secret_response_headers() -> None:
    async with Receiver() as receiver, make_client() as client:
        url = receiver.url("/status/201/Set-Cookie:a=b/X-Mine:c/X-Theirs:d")
        exchange = await client.call(TENANT, WebhookRequest("GET", url, secret_headers=("x-mine",)), 10)
    assert (exchange.status, exchange.body, exchange.error) == (201, b"{}", None)
    assert exchange.headers == (
        ("Content-Length", "2"),
        ("Set-Cookie", REDACTED),
        ("X-Mine", REDACTED),
        ("X-Theirs", "d"),
    )


@pytest.mark.slow
async def test_plain_http_call_has_no_tls_time() -> None:
    async with Receiver() as receiver:
        timings = (await call(receiver, "/status/200")).timings
    assert timings.tls_ms is None
    assert timings.total_ms >= (timings.connect_ms or 0) + (timings.first_byte_ms or 0) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/reset", ErrorKind.RESET, None),
        ("/hang-up", ErrorKind.RESET, None),
        ("/half", ErrorKind.BODY, 200),
        ("/half/500", ErrorKind.BODY, 500),
        ("/half-chunk", ErrorKind.BODY, 200),
        ("/endless-headers", ErrorKind.PROTOCOL, None),
        ("/endless-header", ErrorKind.PROTOCOL, None),
        ("/wrong-protocol", ErrorKind.PROTOCOL, None),
        ("/endless-informational", ErrorKind.PROTOCOL, None),
        (f"/informational/{MAX_INFORMATIONAL + 1}", ErrorKind.PROTOCOL, None),
        ("/large-head", ErrorKind.PROTOCOL, None),
    ],
)
async def test_broken_response_has_an_error_kind(path: str, kind: ErrorKind, status: int | None) -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, path)
    assert (kind_of(exchange), exchange.status) == (kind, status)
    assert exchange.error is not None
    assert exchange.error.detail
    assert receiver.paths == [path]


async def test_incomplete_body_is_kept() -> None:
    async with Receiver() as receiver:
        assert (await call(receiver, "/half")).body == b"the first half"


@pytest.mark.slow
@pytest.mark.parametrize(("path", "status"), [("/slow-headers", None), ("/slow-body", 200)])
async def test_slow_receiver_times_out_after_sent(path: str, status: int | None) -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, path, SOON_SEC)
        async with asyncio.timeout(60):
            await receiver.left.wait()
    assert (kind_of(exchange), exchange.status) == (ErrorKind.TIMEOUT_AFTER_SENT, status)
    assert exchange.timings.total_ms >= SOON_SEC * 990


class HangingDns(AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        pass


@pytest.mark.slow
async def test_slow_dns_times_out_before_sent() -> None:
    async with WebhookClient(LOOPBACK, SystemClock(), resolver=HangingDns()) as client:
        exchange = await client.call(TENANT, WebhookRequest("GET", "http://slow.test/"), 0.05)
    assert kind_of(exchange) is ErrorKind.TIMEOUT_BEFORE_SENT
    assert (exchange.timings.dns_ms or 0) > 0
    assert exchange.timings.connect_ms is None


@pytest.mark.slow
async def test_slow_handshake_times_out_before_sent() -> None:
    async with Greeter() as silent, make_client() as client:
        exchange = await client.call(TENANT, WebhookRequest("GET", f"https://127.0.0.1:{silent.port}/"), SOON_SEC)
    assert kind_of(exchange) is ErrorKind.TIMEOUT_BEFORE_SENT
    assert (exchange.timings.tls_ms or 0) > 0


async def test_closed_port_is_a_connect_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with make_client() as client:
            exchange = await client.call(
                TENANT, WebhookRequest("GET", f"http://127.0.0.1:{unused.getsockname()[1]}/"), 10
            )
    assert kind_of(exchange) is ErrorKind.CONNECT


@pytest.mark.slow
async def test_huge_body_is_truncated() -> None:
    async with Receiver() as receiver, make_client() as client:
        exchange = await client.call(TENANT, WebhookRequest("GET", receiver.url("/huge")), 10)
        async with asyncio.timeout(60):
            await receiver.left.wait()
    assert (exchange.status, exchange.error, exchange.truncated) == (200, None, True)
    assert len(exchange.body) == MAX_BODY


async def test_compressed_body_is_not_decompressed() -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, "/gzip-bomb")
    assert exchange.body == b"\x1f\x8b not unpacked by the caller"
    assert exchange.error is None


async def test_many_headers_are_truncated() -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, "/many-headers")
    assert (exchange.status, exchange.truncated) == (200, True)
    assert 0 < sum(len(name) + len(value) for name, value in exchange.headers) <= 16_384


async def test_cancelling_a_call_raises_cancelled_error() -> None:
    async with Receiver() as receiver, make_client() as client:
        running = asyncio.create_task(client.call(TENANT, WebhookRequest("GET", receiver.url("/slow-headers")), 10))
        await eventually(lambda: receiver.heads)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_invalid_url_is_refused_before_dialling() -> None:
    async with make_client() as client:
        with pytest.raises(InvalidInput):
            await client.call(TENANT, WebhookRequest("GET", "http://0x7f.1/"), 10)


@pytest.mark.slow
async def test_concurrent_calls_get_their_own_responses() -> None:
    async with Receiver() as receiver, make_client() as client:
        requests = [WebhookRequest("GET", receiver.url(f"/status/200/X-Number:{number}")) for number in range(200)]
        exchanges = await asyncio.gather(*(client.call(TENANT, request, 10) for request in requests))
    assert [dict(exchange.headers)["X-Number"] for exchange in exchanges] == [str(number) for number in range(200)]


@pytest.mark.slow
async def test_few_informational_responses_are_skipped() -> None:
    async with Receiver() as receiver, make_client() as client:
        for _ in range(2):
            url = receiver.url(f"/informational/{MAX_INFORMATIONAL}")
            assert (await client.call(TENANT, WebhookRequest("GET", url), 10)).status == 200
        assert receiver.connections == 1
