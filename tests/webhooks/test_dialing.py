"""Only checked addresses are dialled, whatever the URL says and the DNS answers."""

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
from noonday.webhooks.calling import Caller, ErrorKind, Exchange, Request
from noonday.webhooks.dialing import LOOK_UPS_AT_ONCE, MAX_ADDRESSES, _CheckingResolver
from tests.support.factories import TENANT
from tests.webhooks.receiver import Greeter, Receiver, self_signed

LOOPBACK = Networks(["127.0.0.0/8"])


class Answers(AbstractResolver):
    """A DNS that gives one answer after the other, and the last one for ever."""

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


async def get(caller: Caller, url: str, timeout_sec: float = 10) -> Exchange:
    return await caller.call(TENANT, Request("GET", url), timeout_sec)


def kind_of(exchange: Exchange) -> ErrorKind | None:
    return None if exchange.error is None else exchange.error.kind


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "127。0。0。1"])
async def test_the_loopback_is_refused_however_it_is_spelt(host: str) -> None:
    async with Receiver() as receiver, Caller(Networks(), SystemClock()) as caller:
        exchange = await get(caller, receiver.url("/status/200", host))
    assert kind_of(exchange) is ErrorKind.REFUSED_ADDRESS
    assert receiver.connections == 0


async def test_refusal_tells_the_operator_alone_which_address_a_name_has() -> None:
    async with Caller(Networks(), SystemClock(), resolver=Answers(["169.254.169.254"])) as caller:
        usual = structlog.get_config()["wrapper_class"]
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        with capture_logs() as logs:
            exchange = await get(caller, "http://metadata.test/")
        structlog.configure(wrapper_class=usual)
    assert exchange.error is not None
    assert "metadata.test" in exchange.error.detail
    assert "webhooks.allow_networks" in exchange.error.detail
    assert "169.254" not in str(exchange)
    assert [(log["event"], log["host"]) for log in logs] == [("webhook address refused", "metadata.test")]
    assert "169.254.169.254 is a link-local address" in logs[0]["refusal"]


async def test_failed_connection_does_not_tell_which_address_a_name_has() -> None:
    for addresses in (["127.0.0.7"], ["127.0.0.7", "127.0.0.8"]):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://inside.test:{unused.getsockname()[1]}/"
            async with Caller(LOOPBACK, SystemClock(), resolver=Answers(addresses)) as caller:
                exchange = await get(caller, url)
        assert kind_of(exchange) is ErrorKind.CONNECT
        assert "127.0.0" not in str(exchange)


@pytest.mark.parametrize(("place", "status"), [(4, 200), (5, None)])
async def test_at_most_four_addresses_of_a_name_are_dialled(place: int, status: int | None) -> None:
    addresses = [f"127.0.0.{number}" for number in range(2, 40)]
    addresses[place - 1] = "127.0.0.1"
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=Answers(addresses)) as caller:
        assert (await get(caller, receiver.url("/status/200", "many.test"))).status == status


async def test_both_families_are_among_the_addresses_that_are_dialled() -> None:
    dns = Answers([*(f"2600::{number:x}" for number in range(2, 40)), "8.8.8.8"])
    found = [each["host"] for each in await _CheckingResolver(Networks(), dns).resolve("many.test")]
    assert found == ["2600::2", "8.8.8.8", "2600::3", "2600::4"]
    assert len(found) == MAX_ADDRESSES


async def test_hanging_names_of_one_tenant_do_not_hold_up_the_names_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, go_on, hanging = socket.getaddrinfo, threading.Event(), []

    def answer(host: Any, *args: Any, **more: Any) -> Any:
        if str(host).startswith("hanging"):
            hanging.append(host)
            go_on.wait()
        return look_up("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock()) as caller:
        try:
            urls = [receiver.url("/status/200", f"hanging{number}.test") for number in range(200)]
            slow = await asyncio.gather(*(caller.call("slow", Request("GET", url), 0.2) for url in urls))
            exchange = await caller.call("quick", Request("GET", receiver.url("/status/200", "quick.test")), 60)
        finally:
            go_on.set()
    assert {kind_of(each) for each in slow} == {ErrorKind.TIMEOUT_BEFORE_SENT}
    assert exchange.status == 200
    assert len(hanging) == LOOK_UPS_AT_ONCE


async def test_look_up_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Answers):
        async def resolve(self, *_: Any, **__: Any) -> list[ResolveResult]:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("noonday.webhooks.dialing.LOOK_UP_SEC", 0.05)
    async with Caller(LOOPBACK, SystemClock(), resolver=Hanging()) as caller:
        exchange = await get(caller, "http://hanging.test/", 60)
    assert kind_of(exchange) is ErrorKind.DNS
    assert exchange.error is not None
    assert "looking hanging.test up took longer" in exchange.error.detail


async def test_a_name_of_which_one_address_is_refused_is_not_dialled_at_all() -> None:
    dns = Answers(["127.0.0.1", "10.0.0.1"])
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=dns) as caller:
        exchange = await get(caller, receiver.url("/status/200", "mixed.test"))
    assert kind_of(exchange) is ErrorKind.REFUSED_ADDRESS
    assert receiver.connections == 0


async def test_a_name_that_changes_its_address_is_checked_again() -> None:
    networks, dns = Networks(["127.0.0.1/32"]), Answers(["127.0.0.1"], ["127.0.0.2"])
    async with (
        Receiver() as receiver,
        Caller(networks, SystemClock(), resolver=dns, dns_kept_sec=0) as caller,
    ):
        first = await get(caller, receiver.url("/close", "rebinding.test"))
        second = await get(caller, receiver.url("/close", "rebinding.test"))
    assert (first.status, kind_of(second)) == (200, ErrorKind.REFUSED_ADDRESS)
    assert dns.lookups == ["rebinding.test"] * 2
    assert receiver.connections == 1


async def test_a_name_is_looked_up_once_for_a_call() -> None:
    dns = Answers(["127.0.0.1"], ["10.0.0.1"])
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=dns, dns_kept_sec=0) as caller:
        assert (await get(caller, receiver.url("/close", "rebinding.test"))).status == 200
    assert dns.lookups == ["rebinding.test"]


async def test_an_answer_of_the_dns_is_used_again_for_a_while() -> None:
    dns = Answers(["127.0.0.1"], ["10.0.0.1"])
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=dns) as caller:
        assert [(await get(caller, receiver.url("/close", "kept.test"))).status for _ in range(3)] == [200] * 3
    assert dns.lookups == ["kept.test"]
    assert receiver.connections == 3


async def test_the_next_address_of_a_name_is_dialled_when_the_first_does_not_answer() -> None:
    dns = Answers(["127.0.0.9", "127.0.0.1"])
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=dns) as caller:
        assert (await get(caller, receiver.url("/status/200", "two.test"))).status == 200


async def test_the_receiver_sees_the_host_of_the_url() -> None:
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"])) as caller:
        await get(caller, receiver.url("/status/200", "receiver.test"))
        assert receiver.header("host") == f"receiver.test:{receiver.port}"


async def test_the_system_resolves_names_when_no_other_resolver_is_given() -> None:
    networks = Networks(["127.0.0.0/8", "::1/128"])
    async with Receiver() as receiver, Caller(networks, SystemClock()) as caller:
        assert (await get(caller, receiver.url("/status/200", "localhost"))).status == 200


async def test_a_name_that_nobody_knows_is_an_error_of_the_dns() -> None:
    async with Caller(LOOPBACK, SystemClock()) as caller:
        assert kind_of(await get(caller, "http://nobody.invalid/")) is ErrorKind.DNS


async def test_cookies_of_one_answer_are_not_sent_with_the_next_call() -> None:
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"])) as caller:
        await get(caller, receiver.url("/status/200/Set-Cookie:a=b", "receiver.test"))
        await get(caller, receiver.url("/status/200", "receiver.test"))
        assert receiver.header("cookie") is None


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        async with Caller(LOOPBACK, SystemClock()) as caller:
            assert (await get(caller, receiver.url("/status/200"))).status == 200
    assert (receiver.connections, proxy.connections) == (1, 0)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_even_to_where_we_may_call(code: int) -> None:
    async with Receiver() as receiver, Receiver() as target, Caller(LOOPBACK, SystemClock()) as caller:
        exchange = await get(caller, receiver.url(f"/redirect/{code}/{target.port}"))
    assert exchange.status == code
    assert dict(exchange.headers)["Location"] == target.url("/status/200")
    assert target.connections == 0


async def test_a_kept_connection_carries_the_next_call() -> None:
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock()) as caller:
        exchanges = [await get(caller, receiver.url("/status/200")) for _ in range(3)]
    assert [exchange.reused for exchange in exchanges] == [False, True, True]
    assert receiver.connections == 1


@pytest.mark.parametrize("path", ["/reset", "/hang-up"])
async def test_a_call_whose_kept_connection_is_cut_is_not_sent_a_second_time(path: str) -> None:
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock()) as caller:
        await get(caller, receiver.url("/status/200"))
        exchange = await get(caller, receiver.url(path))
    assert kind_of(exchange) is ErrorKind.RESET
    assert exchange.reused
    assert receiver.paths == ["/status/200", path]


async def test_a_call_beyond_the_limit_for_its_host_waits_and_sends_nothing() -> None:
    async with Receiver() as receiver, Caller(LOOPBACK, SystemClock(), limit_per_host=1) as caller:
        first = asyncio.create_task(get(caller, receiver.url("/slow-headers"), 1.0))
        second = asyncio.create_task(get(caller, receiver.url("/slow-headers"), 0.5))
        kinds = [kind_of(await first), kind_of(await second)]
    assert kinds == [ErrorKind.TIMEOUT_AFTER_SENT, ErrorKind.TIMEOUT_BEFORE_SENT]
    assert receiver.connections == 1


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_a_certificate_that_nobody_vouches_for_is_an_error_of_tls(tmp_path: Path) -> None:
    tls, dns = server_tls(self_signed(tmp_path, "receiver.test")), Answers(["127.0.0.1"])
    async with Receiver(tls) as receiver, Caller(LOOPBACK, SystemClock(), resolver=dns) as caller:
        exchange = await get(caller, receiver.url("/status/200", "receiver.test"))
    assert kind_of(exchange) is ErrorKind.TLS
    assert "self-signed" in str(exchange.error)
    assert receiver.heads == []


async def test_a_certificate_for_another_name_is_an_error_of_tls(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "receiver.test")
    async with (
        Receiver(server_tls(certificate)) as receiver,
        Caller(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"]), ca_file=certificate) as caller,
    ):
        exchange = await get(caller, receiver.url("/status/200", "other.test"))
    assert kind_of(exchange) is ErrorKind.TLS


async def test_a_server_without_tls_is_an_error_of_tls() -> None:
    async with Greeter(b"220 mail.test ESMTP\r\n") as greeter, Caller(LOOPBACK, SystemClock()) as caller:
        exchange = await get(caller, f"https://127.0.0.1:{greeter.port}/")
    assert kind_of(exchange) is ErrorKind.TLS


async def call_over_tls(folder: Path) -> tuple[Exchange, list[str | None]]:
    certificate = self_signed(folder, "receiver.test")
    tls, names = server_tls(certificate), []
    tls.sni_callback = lambda connection, name, context: names.append(name)
    async with (
        Receiver(tls) as receiver,
        Caller(LOOPBACK, SystemClock(), resolver=Answers(["127.0.0.1"]), ca_file=certificate) as caller,
    ):
        return await get(caller, receiver.url("/status/200", "receiver.test")), names


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_call_over_tls_names_the_host_and_times_every_part(run: Run, tmp_path: Path) -> None:
    exchange, names = run(call_over_tls(tmp_path))
    timings = exchange.timings
    parts = [timings.dns_ms, timings.connect_ms, timings.tls_ms, timings.first_byte_ms]
    assert (exchange.status, names) == (200, ["receiver.test"])
    assert all(part is not None and part >= 0 for part in parts)
    assert 0 < sum(part or 0 for part in parts) <= timings.total_ms + 0.01
    assert (timings.tls_ms or 0) > 0
