"""What a call tells of receivers that misbehave."""

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from noonday.model.errors import InvalidInput
from noonday.model.redaction import REDACTED
from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import MAX_BODY, Caller, ErrorKind, Exchange, Request
from noonday.webhooks.protocol import MAX_INFORMATIONAL
from tests.support.eventually import eventually
from tests.support.factories import TENANT
from tests.webhooks.receiver import Greeter, Receiver

LOOPBACK = Networks(["127.0.0.0/8"])
SOON_SEC = 0.5


def make_caller() -> Caller:
    return Caller(LOOPBACK, SystemClock())


async def call(receiver: Receiver, path: str, timeout_sec: float = 10) -> Exchange:
    async with make_caller() as caller:
        return await caller.call(TENANT, Request("POST", receiver.url(path), {}, b"{}"), timeout_sec)


def kind_of(exchange: Exchange) -> ErrorKind | None:
    return None if exchange.error is None else exchange.error.kind


async def test_the_request_arrives_as_it_was_given() -> None:
    request_headers = {"Content-Type": "application/json", "X-Team": "a", "User-Agent": "mine"}
    async with Receiver() as receiver, make_caller() as caller:
        url = receiver.url("/status/200?a=%2B&b=c+d")
        await caller.call(TENANT, Request("PUT", url, request_headers, b'{"a": 1}'), 10)
        assert receiver.heads[0].startswith("PUT /status/200?a=%2B&b=c+d HTTP/1.1\r\n")
        assert receiver.bodies == [b'{"a": 1}']
        assert {name: receiver.header(name) for name in request_headers} == request_headers
        assert receiver.header("accept-encoding") == "identity"


async def test_a_call_says_no_more_than_it_was_told_to() -> None:
    async with Receiver() as receiver:
        await call(receiver, "/status/200")
        names = {line.split(":")[0] for line in receiver.heads[0].split("\r\n")[1:] if line}
    assert names == {"Host", "User-Agent", "Accept-Encoding", "Accept", "Content-Length"}


async def test_the_answer_is_kept_with_its_secrets_redacted() -> None:
    async with Receiver() as receiver, make_caller() as caller:
        url = receiver.url("/status/201/Set-Cookie:a=b/X-Mine:c/X-Theirs:d")
        exchange = await caller.call(TENANT, Request("GET", url, secret_headers=("x-mine",)), 10)
    assert (exchange.status, exchange.body, exchange.error) == (201, b"{}", None)
    assert exchange.headers == (
        ("Content-Length", "2"),
        ("Set-Cookie", REDACTED),
        ("X-Mine", REDACTED),
        ("X-Theirs", "d"),
    )


async def test_an_answer_over_http_is_timed_without_tls() -> None:
    async with Receiver() as receiver:
        timings = (await call(receiver, "/status/200")).timings
    assert timings.tls_ms is None
    assert timings.total_ms >= (timings.connect_ms or 0) + (timings.first_byte_ms or 0) > 0


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
async def test_a_broken_answer_is_told_apart_by_kind(path: str, kind: ErrorKind, status: int | None) -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, path)
    assert (kind_of(exchange), exchange.status) == (kind, status)
    assert exchange.error is not None
    assert exchange.error.detail
    assert receiver.paths == [path]


async def test_the_half_that_came_is_kept() -> None:
    async with Receiver() as receiver:
        assert (await call(receiver, "/half")).body == b"the first half"


@pytest.mark.parametrize(("path", "status"), [("/slow-headers", None), ("/slow-body", 200)])
async def test_a_receiver_that_is_too_slow_has_been_sent_the_request(path: str, status: int | None) -> None:
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


async def test_a_dns_that_is_too_slow_has_sent_nothing() -> None:
    async with Caller(LOOPBACK, SystemClock(), resolver=HangingDns()) as caller:
        exchange = await caller.call(TENANT, Request("GET", "http://slow.test/"), 0.05)
    assert kind_of(exchange) is ErrorKind.TIMEOUT_BEFORE_SENT
    assert (exchange.timings.dns_ms or 0) > 0
    assert exchange.timings.connect_ms is None


async def test_a_handshake_that_is_too_slow_has_sent_nothing() -> None:
    async with Greeter() as silent, make_caller() as caller:
        exchange = await caller.call(TENANT, Request("GET", f"https://127.0.0.1:{silent.port}/"), SOON_SEC)
    assert kind_of(exchange) is ErrorKind.TIMEOUT_BEFORE_SENT
    assert (exchange.timings.tls_ms or 0) > 0


async def test_a_port_where_nobody_listens_is_an_error_of_connecting() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with make_caller() as caller:
            exchange = await caller.call(TENANT, Request("GET", f"http://127.0.0.1:{unused.getsockname()[1]}/"), 10)
    assert kind_of(exchange) is ErrorKind.CONNECT


async def test_no_more_of_a_huge_body_is_read_than_is_kept() -> None:
    async with Receiver() as receiver, make_caller() as caller:
        exchange = await caller.call(TENANT, Request("GET", receiver.url("/huge")), 10)
        async with asyncio.timeout(60):
            await receiver.left.wait()
    assert (exchange.status, exchange.error, exchange.truncated) == (200, None, True)
    assert len(exchange.body) == MAX_BODY


async def test_a_packed_body_is_kept_packed() -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, "/gzip-bomb")
    assert exchange.body == b"\x1f\x8b not unpacked by the caller"
    assert exchange.error is None


async def test_of_very_many_headers_the_first_are_kept() -> None:
    async with Receiver() as receiver:
        exchange = await call(receiver, "/many-headers")
    assert (exchange.status, exchange.truncated) == (200, True)
    assert 0 < sum(len(name) + len(value) for name, value in exchange.headers) <= 16_384


async def test_a_call_that_is_cancelled_is_cancelled() -> None:
    async with Receiver() as receiver, make_caller() as caller:
        running = asyncio.create_task(caller.call(TENANT, Request("GET", receiver.url("/slow-headers")), 10))
        await eventually(lambda: receiver.heads)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_url_that_cannot_be_called_is_refused_before_anything_is_dialled() -> None:
    async with make_caller() as caller:
        with pytest.raises(InvalidInput):
            await caller.call(TENANT, Request("GET", "http://0x7f.1/"), 10)


async def test_many_calls_at_once_each_get_their_own_answer() -> None:
    async with Receiver() as receiver, make_caller() as caller:
        requests = [Request("GET", receiver.url(f"/status/200/X-Number:{number}")) for number in range(200)]
        exchanges = await asyncio.gather(*(caller.call(TENANT, request, 10) for request in requests))
    assert [dict(exchange.headers)["X-Number"] for exchange in exchanges] == [str(number) for number in range(200)]


async def test_some_informational_answers_are_passed_over() -> None:
    async with Receiver() as receiver, make_caller() as caller:
        for _ in range(2):
            url = receiver.url(f"/informational/{MAX_INFORMATIONAL}")
            assert (await caller.call(TENANT, Request("GET", url), 10)).status == 200
        assert receiver.connections == 1
