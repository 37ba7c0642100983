"""Only checked addresses are dialled, for any URL and any answer of the DNS."""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult
from structlog.testing import capture_logs

from noonday.runtime.clock import SystemClock
from noonday.webhooks.addresses import Networks
from noonday.webhooks.calling import ErrorKind, Exchange, WebhookClient, WebhookRequest
from noonday.webhooks.dialing import MAX_ADDRESSES, MAX_RESOLVES, CheckingResolver
from tests.support.factories import TENANT
from tests.webhooks.receiver import Greeter, Receiver, self_signed

LOOPBACK = Networks(["127.0.0.0/8"])


class Answers(AbstractResolver):
    """A DNS that gives one answer after the other, and repeats the last one."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.lookups: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.lookups.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            ResolveResult(hostname=host, host=each, port=port, family=_family(each), proto=0, flags=0)
            for each in answer
        ]

    async def close(self) -> None:
        pass


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


async def get(client: WebhookClient, url: str, timeout_sec: float = 10) -> Exchange:
    return await client.call(TENANT, WebhookRequest("GET", url), timeout_sec)


def kind_of(exchange: Exchange) -> ErrorKind | None:
    return None if exchange.error is None else exchange.error.kind


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "127。0。0。1"])
async def test_loopback_is_refused_in_every_spelling(host: str) -> None:
    async with Receiver() as receiver, WebhookClient(Networks(), SystemClock()) as client:
        exchange = await get(client, receiver.url("/status/200", host))
    assert kind_of(exchange) is ErrorKind.REFUSED_ADDRESS
    assert receiver.connections == 0


async def test_refused_address_is_logged_and_hidden_from_the_tenant() -> None:
    async with WebhookClient(Networks(), SystemClock(), resolver=Answers(["169.254.169.254"])) as client:
        usual = structlog.get_config()["wrapper_class"]
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        with capture_logs() as logs:
            exchange = await get(client, "http://metadata.test/")
        structlog.configure(wrapper_class=usual)
    assert exchange.error is not None
    assert "metadata.test" in exchange.error.detail
    assert "webhooks.allow_networks" in exchange.error.detail
    assert "169.254" not in str(exchange)
    assert [(log["event"], log["host"]) for log in logs] == [("webhook address refused", "metadata.test")]
    assert "169.254.169.254 is a link-local address" in logs[0]["refusal"]


@pytest.mark.slow
async def test_failed_connection_hides_the_address() -> None:
    for addresses in (["127.0.0.7"], ["127.0.0.7", "127.0.0.8"]):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://inside.test:{unused.getsockname()[1]}/"
            async with WebhookClient(LOOPBACK, SystemClock(), resolver=Answers(addresses)) as client:
                exchange = await get(client, url)
        assert kind_of(exchange) is ErrorKind.CONNECT
        assert "127.0.0" not in str(exchange)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "status"), [(4, 200), (5, None)])
async def test_at_most_four_addresses_of_a_name_are_dialled(place: int, status: int | None) -> None:
    addresses = [f"127.0.0.{number}" for number in range(2, 40)]
    addresses[place - 1] = "127.0.0.1"
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock(), resolver=Answers(addresses)) as client:
        assert (await get(client, receiver.url("/status/200", "many.test"))).status == status


async def test_dialled_addresses_include_both_families() -> None:
    dns = Answers([*(f"2600::{number:x}" for number in range(2, 40)), "8.8.8.8"])
    found = [each["host"] for each in await CheckingResolver(Networks(), dns).resolve("many.test")]
    assert found == ["2600::2", "8.8.8.8", "2600::3", "2600::4"]
    assert len(found) == MAX_ADDRESSES


@pytest.mark.slow
async def test_slow_names_of_one_tenant_do_not_delay_another(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, go_on, hanging = socket.getaddrinfo, threading.Event(), []

    def answer(host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).startswith("hanging"):
            hanging.append(host)
            go_on.wait()
        return resolve("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock()) as client:
        try:
            urls = [receiver.url("/status/200", f"hanging{number}.test") for number in range(200)]
            slow = await asyncio.gather(*(client.call("slow", WebhookRequest("GET", url), 0.2) for url in urls))
            exchange = await client.call("quick", WebhookRequest("GET", receiver.url("/status/200", "quick.test")), 60)
        finally:
            go_on.set()
    assert {kind_of(each) for each in slow} == {ErrorKind.TIMEOUT_BEFORE_SENT}
    assert exchange.status == 200
    assert len(hanging) == MAX_RESOLVES


@pytest.mark.slow
async def test_slow_resolve_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Answers):
        async def resolve(self, *_: Any, **__: Any) -> list[ResolveResult]:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("noonday.webhooks.dialing.RESOLVE_TIMEOUT_SEC", 0.05)
    async with WebhookClient(LOOPBACK, SystemClock(), resolver=Hanging()) as client:
        exchange = await get(client, "http://hanging.test/", 60)
    assert kind_of(exchange) is ErrorKind.DNS
    assert exchange.error is not None
    assert "resolving hanging.test took longer" in exchange.error.detail


@pytest.mark.slow
async def test_name_with_one_refused_address_is_not_dialled() -> None:
    dns = Answers(["127.0.0.1", "10.0.0.1"])
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock(), resolver=dns) as client:
        exchange = await get(client, receiver.url("/status/200", "mixed.test"))
    assert kind_of(exchange) is ErrorKind.REFUSED_ADDRESS
    assert receiver.connections == 0


async def test_changed_address_of_a_name_is_checked_again() -> None:
    networks, dns = Networks(["127.0.0.1/32"]), Answers(["127.0.0.1"], ["127.0.0.2"])
    async with (
        Receiver() as receiver,
        WebhookClient(networks, SystemClock(), resolver=dns, dns_kept_sec=0) as client,
    ):
        first = await get(client, receiver.url("/close", "rebinding.test"))
        second = await get(client, receiver.url("/close", "rebinding.test"))
    assert (first.status, kind_of(second)) == (200, ErrorKind.REFUSED_ADDRESS)
    assert dns.lookups == ["rebinding.test"] * 2
    assert receiver.connections == 1


@pytest.mark.slow
async def test_name_is_resolved_once_per_call() -> None:
    dns = Answers(["127.0.0.1"], ["10.0.0.1"])
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock(), resolver=dns, dns_kept_sec=0) as client:
        assert (await get(client, receiver.url("/close", "rebinding.test"))).status == 200
    assert dns.lookups == ["rebinding.test"]


@pytest.mark.slow
async def test_dns_result_is_cached() -> None:
    dns = Answers(["127.0.0.1"], ["10.0.0.1"])
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock(), resolver=dns) as client:
        assert [(await get(client, receiver.url("/close", "kept.test"))).status for _ in range(3)] == [200] * 3
    assert dns.lookups == ["kept.test"]
    assert receiver.connections == 3


async def test_next_address_is_dialled_if_the_first_fails() -> None:
    dns = Answers(["127.0.0.9", "127.0.0.1"])
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock(), resolver=dns) as client:
        assert (await get(client, receiver.url("/status/200", "two.test"))).status == 200


async def test_host_header_is_the_host_of_the_url() -> None:
    async with (
        Receiver() as receiver,
        WebhookClient(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"])) as client,
    ):
        await get(client, receiver.url("/status/200", "receiver.test"))
        assert receiver.header("host") == f"receiver.test:{receiver.port}"


@pytest.mark.slow
async def test_system_resolver_is_the_default() -> None:
    networks = Networks(["127.0.0.0/8", "::1/128"])
    async with Receiver() as receiver, WebhookClient(networks, SystemClock()) as client:
        assert (await get(client, receiver.url("/status/200", "localhost"))).status == 200


async def test_unknown_name_is_a_dns_error() -> None:
    async with WebhookClient(LOOPBACK, SystemClock()) as client:
        assert kind_of(await get(client, "http://nobody.invalid/")) is ErrorKind.DNS


async def test_cookies_are_not_kept() -> None:
    async with (
        Receiver() as receiver,
        WebhookClient(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"])) as client,
    ):
        await get(client, receiver.url("/status/200/Set-Cookie:a=b", "receiver.test"))
        await get(client, receiver.url("/status/200", "receiver.test"))
        assert receiver.header("cookie") is None


@pytest.mark.slow
async def test_proxy_in_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        async with WebhookClient(LOOPBACK, SystemClock()) as client:
            assert (await get(client, receiver.url("/status/200"))).status == 200
    assert (receiver.connections, proxy.connections) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_redirect_is_not_followed(code: int) -> None:
    async with Receiver() as receiver, Receiver() as target, WebhookClient(LOOPBACK, SystemClock()) as client:
        exchange = await get(client, receiver.url(f"/redirect/{code}/{target.port}"))
    assert exchange.status == code
    assert dict(exchange.headers)["Location"] == target.url("/status/200")
    assert target.connections == 0


@pytest.mark.slow
async def test_open_connection_is_reused() -> None:
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock()) as client:
        exchanges = [await get(client, receiver.url("/status/200")) for _ in range(3)]
    assert [exchange.reused for exchange in exchanges] == [False, True, True]
    assert receiver.connections == 1


@pytest.mark.parametrize("path", ["/reset", "/hang-up"])
async def test_call_on_a_closed_reused_connection_is_not_resent(path: str) -> None:
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock()) as client:
        await get(client, receiver.url("/status/200"))
        exchange = await get(client, receiver.url(path))
    assert kind_of(exchange) is ErrorKind.RESET
    assert exchange.reused
    assert receiver.paths == ["/status/200", path]


@pytest.mark.slow
async def test_call_beyond_the_limit_waits_before_sending() -> None:
    async with Receiver() as receiver, WebhookClient(LOOPBACK, SystemClock(), limit=1) as client:
        first = asyncio.create_task(get(client, receiver.url("/slow-headers"), 1.0))
        second = asyncio.create_task(get(client, receiver.url("/slow-headers"), 0.5))
        kinds = [kind_of(await first), kind_of(await second)]
    assert kinds == [ErrorKind.TIMEOUT_AFTER_SENT, ErrorKind.TIMEOUT_BEFORE_SENT]
    assert receiver.connections == 1


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.slow
async def test_untrusted_certificate_is_a_tls_error(tmp_path: Path) -> None:
    tls, dns = server_tls(self_signed(tmp_path, "receiver.test")), Answers(["127.0.0.1"])
    async with Receiver(tls) as receiver, WebhookClient(LOOPBACK, SystemClock(), resolver=dns) as client:
        exchange = await get(client, receiver.url("/status/200", "receiver.test"))
    assert kind_of(exchange) is ErrorKind.TLS
    assert "self-signed" in str(exchange.error)
    assert receiver.heads == []


@pytest.mark.slow
async def test_certificate_for_another_name_is_a_tls_error(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "receiver.test")
    async with (
        Receiver(server_tls(certificate)) as receiver,
        WebhookClient(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"]), ca_file=certificate) as client,
    ):
        exchange = await get(client, receiver.url("/status/200", "other.test"))
    assert kind_of(exchange) is ErrorKind.TLS


@pytest.mark.slow
async def test_server_without_tls_is_a_tls_error() -> None:
    async with Greeter(b"220 mail.test ESMTP\r\n") as greeter, WebhookClient(LOOPBACK, SystemClock()) as client:
        exchange = await get(client, f"https://127.0.0.1:{greeter.port}/")
    assert kind_of(exchange) is ErrorKind.TLS


async def call_over_tls(folder: Path) -> tuple[Exchange, list[str | None]]:
    certificate = self_signed(folder, "receiver.test")
    tls, names = server_tls(certificate), []
    tls.sni_callback = lambda connection, name, context: names.append(name)
    async with (
        Receiver(tls) as receiver,
        WebhookClient(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"]), ca_file=certificate) as client,
    ):
        return await get(client, receiver.url("/status/200", "receiver.test")), names


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.mark.slow
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_tls_call_sends_sni_and_times_every_phase(run: Run, tmp_path: Path) -> None:
    exchange, names = run(call_over_tls(tmp_path))
    timings = exchange.timings
    parts = [timings.dns_ms, timings.connect_ms, timings.tls_ms, timings.first_byte_ms]
    assert (exchange.status, names) == (200, ["receiver.test"])
    assert all(part is not None and part >= 0 for part in parts)
    assert 0 < sum(part or 0 for part in parts) <= timings.total_ms + 0.01
    assert (timings.tls_ms or 0) > 0
