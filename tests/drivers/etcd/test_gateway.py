import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from servers.process import Command

from noonday.drivers.etcd.gateway import EtcdOptions, EtcdRefused, Gateway
from noonday.drivers.etcd.leases import EtcdLeases
from noonday.model.errors import BadSettings, LeasesUnavailable
from noonday.model.ids import InstanceId
from servers import Authority, Certificate, Etcd, free_port, free_ports
from tests.drivers.etcd.conftest import NewLeases
from tests.support.drivers import ETCD_URLS
from tests.support.eventually import eventually
from tests.support.tcp_cutter import HOST

ME = InstanceId("i-1")
PASSWORD = 'noon: "12" o\'clock'


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Authority(tmp_path_factory.mktemp("authority")).issue("etcd")


@pytest.fixture(scope="module")
def locked_etcd(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[Etcd]:
    """An etcd with TLS and a password."""
    folder = tmp_path_factory.mktemp("etcd-locked")
    with Etcd(folder, free_ports(2), nodes=1, password=PASSWORD, certificate=certificate) as etcd:
        yield etcd


@pytest.fixture
def key(certificate: Certificate) -> EtcdOptions:
    return EtcdOptions(ca_file=certificate.authority, user="root", password=PASSWORD)


@pytest.mark.slow
async def test_tls_and_a_password_open_the_door(locked_etcd: Etcd, key: EtcdOptions, new_leases: NewLeases) -> None:
    mine, onlookers = (new_leases([locked_etcd.url], options=key) for _ in range(2))
    await mine.join(ME, 1.0)
    assert await mine.renew(1.5)
    assert await onlookers.members() == {ME: 1.5}
    waiting = asyncio.create_task(onlookers.changed(30))
    await mine.leave()
    assert await waiting


@pytest.mark.slow
async def test_a_token_that_the_server_forgot_is_renewed(
    locked_etcd: Etcd, key: EtcdOptions, new_leases: NewLeases
) -> None:
    leases = new_leases([locked_etcd.url], options=key)
    await leases.join(ME, 1.0)
    await asyncio.to_thread(locked_etcd.restart)
    assert await leases.renew()
    await leases.leave()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"user": "root", "password": "guessed"}, "invalid user ID or password"),
        ({}, "user name is empty"),
    ],
)
async def test_client_without_the_password_is_refused(
    locked_etcd: Etcd, certificate: Certificate, new_leases: NewLeases, options: dict[str, str], complaint: str
) -> None:
    leases = new_leases([locked_etcd.url], options=EtcdOptions(ca_file=certificate.authority, **options))
    with pytest.raises(LeasesUnavailable, match=complaint):
        await leases.join(ME, 1.0)


@pytest.mark.slow
async def test_a_server_whose_authority_is_not_ours_is_not_trusted(locked_etcd: Etcd, new_leases: NewLeases) -> None:
    with pytest.raises(LeasesUnavailable, match="certificate verify failed"):
        await new_leases([locked_etcd.url]).members()


@pytest.mark.slow
async def test_a_certificate_of_ours_opens_the_door_that_asks_for_one(
    tmp_path: Path, certificate: Certificate, new_leases: NewLeases
) -> None:
    files = EtcdOptions(certificate.authority, certificate.certificate, certificate.key)
    with _AsksForCertificates(tmp_path, free_ports(2), nodes=1, certificate=certificate) as etcd:
        leases = new_leases([etcd.url], options=files)
        await eventually(lambda: joined(leases))
        assert await leases.renew()
        with pytest.raises(LeasesUnavailable):
            await new_leases([etcd.url], options=EtcdOptions(certificate.authority)).members()


async def test_password_that_the_server_does_not_need_does_no_harm(new_leases: NewLeases) -> None:
    leases = new_leases(options=EtcdOptions(user="root", password="unasked"))
    await leases.join(ME, 1.0)
    assert await leases.renew()
    await leases.leave()


@pytest.mark.slow
async def test_news_that_etcd_no_longer_knows_are_news(own_etcd: Etcd) -> None:
    async with opened(own_etcd.url) as gateway:
        for _ in range(3):
            await gateway.call("kv/put", {"key": b"a", "value": b"1"}, dict)
        latest = int((await gateway.call("kv/range", {"key": b"a"}, dict))["header"]["revision"])
        await gateway.call("kv/compaction", {"revision": str(latest)}, dict)
        async with asyncio.timeout(60):
            await gateway.wait_for_change(b"a", b"b", 1)


async def test_refusal_is_raised_with_its_reason() -> None:
    async with opened(*ETCD_URLS) as gateway:
        with pytest.raises(EtcdRefused, match="requested lease not found") as refused:
            await gateway.call("lease/revoke", {"ID": "404"}, dict)
    assert refused.value.reason == 5


async def test_a_server_that_is_no_etcd_is_named() -> None:
    async with always_answering(404, "<html>not found</html>") as url, opened(url) as gateway:
        with pytest.raises(LeasesUnavailable, match=rf"{url} is not an etcd: it answered 404 b'<html>"):
            await gateway.call("kv/range", {"key": b"a"}, dict)
        with pytest.raises(LeasesUnavailable, match=url):
            await gateway.wait_for_change(b"a", b"b", 1)


@pytest.mark.parametrize(
    "answer",
    [
        (404, '{"error":"no such lease","message":"no such lease","code":5}'),
        (404, '{"code":5,"message":"no such lease","details":[]}'),
        (200, '{"error":{"grpc_code":5,"http_code":404,"message":"no such lease","http_status":"Not Found"}}'),
        (200, '{"error":{"code":5,"message":"no such lease","details":[]}}'),
    ],
    ids=["alone, 3.4", "alone, 3.6", "in a stream, 3.4", "in a stream, 3.6"],
)
async def test_a_refusal_is_understood_in_every_form(answer: tuple[int, str]) -> None:
    async with always_answering(*answer) as url, opened(url) as gateway:
        with pytest.raises(EtcdRefused, match="etcd refuses: no such lease") as refused:
            await gateway.call("lease/keepalive", {"ID": "404"}, dict)
    assert refused.value.reason == 5


@pytest.mark.parametrize(
    "line",
    [
        '{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}',
        '{"result":{"header":{},"canceled":true,"cancel_reason":"etcdserver: no leader"}}',
    ],
)
async def test_a_watch_that_etcd_ends_is_no_news(line: str) -> None:
    async with always_answering(200, line) as url, opened(url) as gateway:
        with pytest.raises(LeasesUnavailable, match="no leader"):
            await gateway.wait_for_change(b"a", b"b", 1)


async def test_all_endpoints_are_tried_if_no_server_listens() -> None:
    first, second = (f"http://{HOST}:{free_port()}" for _ in range(2))
    async with opened(first, second) as gateway:
        with pytest.raises(LeasesUnavailable, match=f"{first}: .*; {second}: "):
            await gateway.call("kv/range", {"key": b"a"}, dict)


@pytest.mark.parametrize(
    ("endpoints", "options", "complaint"),
    [
        ([], EtcdOptions(), "at least one endpoint"),
        (["127.0.0.1:2379"], EtcdOptions(), "'127.0.0.1:2379' must begin with http:// or https://"),
        (["http://127.0.0.1:2379"], EtcdOptions(ca_file=Path("ca.pem")), "must begin with https://"),
        (["https://127.0.0.1:2379"], EtcdOptions(ca_file=Path("/no/ca.pem")), r"\(/no/ca.pem\): .*No such file"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    endpoints: list[str], options: EtcdOptions, complaint: str
) -> None:
    with pytest.raises(BadSettings, match=complaint):
        EtcdLeases(endpoints, "scheduler", options=options)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(EtcdOptions(user="root", password="secret"))


async def joined(leases: EtcdLeases) -> bool:
    with suppress(LeasesUnavailable):
        await leases.join(ME, 1.0)
        return True
    return False


@asynccontextmanager
async def opened(*endpoints: str) -> AsyncIterator[Gateway]:
    gateway = Gateway(endpoints, EtcdOptions())
    try:
        yield gateway
    finally:
        await gateway.close()


@asynccontextmanager
async def always_answering(status: int, page: str) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} As Told\r\nConnection: close\r\nContent-Length: {len(page)}\r\n\r\n"
        writer.write((head + page).encode())
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"


class _AsksForCertificates(Etcd):
    def _prepare(self, node: int) -> Command:
        assert self.certificate is not None
        demand = {"ETCD_CLIENT_CERT_AUTH": "true", "ETCD_TRUSTED_CA_FILE": str(self.certificate.authority)}
        return replace(super()._prepare(node), env=demand)

    def answers(self, node: int) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self.ports[node][0]), 1):
            return True
        return False
