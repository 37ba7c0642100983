"""Each real server starts, accepts only clients with the password over TLS, dies and comes back."""

import base64
import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
import redis.asyncio
import redis.exceptions
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from servers import Authority, Certificate, Etcd, Kafka, Postgres, Redis, ServerFailed, WrongUse, free_port, free_ports
from tests.servers.clone import Clone

pytestmark = pytest.mark.slow

PASSWORD = "s3cret"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Authority(tmp_path_factory.mktemp("authority")).issue("server")


async def test_postgres_demands_a_password_and_tls(tmp_path: Path, certificate: Certificate) -> None:
    options = {"password": PASSWORD, "certificate": certificate, "throwaway": True}
    with Postgres(tmp_path, free_port(), **options) as server:
        durability = "select current_setting('fsync'), current_setting('synchronous_commit'), current_database()"
        assert tuple(await _ask(server.url, durability)) == ("on", "on", "noonday")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await _ask(server.url.replace(PASSWORD, "guess"), "select 1")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no pg_hba"):
            await _ask(server.url.replace("verify-full", "disable"), "select 1")
        data = server.data
    assert not data.exists()


async def test_postgres_keeps_committed_rows_when_all_its_processes_are_killed(tmp_path: Path) -> None:
    with Postgres(tmp_path, free_port(), throwaway=True) as server:
        await _ask(server.url, "create table kept as select 7 as number")
        server.kill()
        assert not server.running
        server.start()
        assert tuple(await _ask(server.url, "select number from kept")) == (7,)
        server.pause()
        assert not server.answers(0)
        server.resume()
        server.wait_ready()


async def _ask(url: str, query: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchrow(query)
    finally:
        await connection.close()


async def test_redis_demands_a_password_and_tls_and_comes_back_with_its_data(
    tmp_path: Path, certificate: Certificate
) -> None:
    with Redis(tmp_path, free_port(), password=PASSWORD, certificate=certificate) as server:
        async with redis.asyncio.from_url(server.url, ssl_ca_certs=str(certificate.authority)) as client:
            await client.set("kept", "yes")
        server.restart()
        async with redis.asyncio.from_url(server.url, ssl_ca_certs=str(certificate.authority)) as client:
            assert await client.get("kept") == b"yes"
        wrong = server.url.replace(PASSWORD, "guess")
        async with redis.asyncio.from_url(wrong, ssl_ca_certs=str(certificate.authority)) as client:
            with pytest.raises(redis.exceptions.AuthenticationError):
                await client.ping()
    assert not tmp_path.exists()


async def test_three_nodes_of_etcd_demand_a_password_and_tls_and_outlive_one(
    tmp_path: Path, certificate: Certificate
) -> None:
    with Etcd(tmp_path, free_ports(6), 3, password=PASSWORD, certificate=certificate) as server:
        first, second, third = server.url.split(",")
        assert (await _put(first, certificate, token=""))[0] == 400
        _, reply = await _post(f"{first}/v3/auth/authenticate", certificate, {"name": "root", "password": PASSWORD})
        server.kill(node=0)
        server.wait_ready(node=1)
        assert (await _put(third, certificate, reply["token"]))[0] == 200
        server.start(node=0)
        assert (await _put(second, certificate, reply["token"]))[0] == 200


async def _put(url: str, certificate: Certificate, token: str) -> tuple[int, Any]:
    body = {"key": base64.b64encode(b"key").decode(), "value": base64.b64encode(b"value").decode()}
    return await _post(f"{url}/v3/kv/put", certificate, body, token)


async def _post(url: str, certificate: Certificate, body: dict[str, str], token: str = "") -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(certificate.authority))
    headers = {"Authorization": token} if token else {}
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers, ssl=context) as reply:
        return reply.status, await reply.json()


def test_three_nodes_of_kafka_demand_a_password_over_tls_and_take_a_lost_one_back(
    tmp_path: Path, certificate: Certificate
) -> None:
    with Kafka(tmp_path, free_ports(6), 3, password=PASSWORD, certificate=certificate, throwaway=True) as server:
        client = {
            "bootstrap.servers": server.url,
            "security.protocol": server.protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "noonday",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(certificate.authority),
            "log_level": 0,
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic("events", 1, 3)])["events"].result(30)
        assert _send(client) is None
        server.kill(node=2)
        server.start(node=2)
        assert len(admin.list_topics(timeout=10).brokers) == 3
        refused = _send({**client, "sasl.password": "guess", "message.timeout.ms": 1000})
        assert refused is not None
        assert refused.code() == KafkaError._MSG_TIMED_OUT


def _send(client: dict[str, Any]) -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"enable.idempotence": True, **client})
    producer.produce("events", b"hello", on_delivery=lambda error, message: outcomes.append(error))
    producer.flush(30)
    return outcomes[0]


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = Redis(tmp_path, free_port(), settings={"appendfsync": "sometimes"})
    with pytest.raises(ServerFailed, match="sometimes"):
        server.start()


def test_data_are_not_opened_with_another_number_of_nodes(tmp_path: Path) -> None:
    with Etcd(tmp_path, free_ports(2), 1) as server:
        server.stop()
        with pytest.raises(WrongUse, match="wipe them first"):
            Etcd(tmp_path, free_ports(6), 3).start()


def test_the_command_starts_twice_stops_and_wipes(clone: Clone) -> None:
    clone.use_port(25432, free_port())
    clone.use_port(26379, free_port())
    only = ["--only", "postgres,redis"]
    try:
        started = clone.run("start", *only)
        assert started.returncode == 0, started.stderr
        assert "NOONDAY_POSTGRES_URL=postgresql://postgres@127.0.0.1:" in started.stdout
        assert "ready after" in started.stderr
        if os.geteuid() == 0:  # a test's folder is closed to other users, and PostgreSQL runs as another user
            assert "postgres: the data are in /var/tmp/noonday-" in started.stderr
        assert "already running" in clone.run("start", *only).stderr
        assert _states(clone, only) == ["up", "up"]
        assert "postgres: stopped" in clone.run("stop", *only).stderr
        assert _states(clone, only) == ["down", "down"]
        assert "postgres: ready after" in clone.run("start", *only).stderr
    finally:
        assert clone.run("wipe", *only).returncode == 0
    assert not (clone.folder / "var/servers/postgres").exists()
    assert _states(clone, only) == ["down", "down"]


def _states(clone: Clone, only: list[str]) -> list[str]:
    return [line.split()[4] for line in clone.run("status", *only).stdout.splitlines()[1:]]
