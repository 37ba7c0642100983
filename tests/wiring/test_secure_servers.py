"""Servers with TLS and a password: a client with the right settings is accepted, and one with the wrong ones is refused."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from noonday.cli.server.checks import CheckContext, Finding, Level
from noonday.cli.server.etcd_checks import check_etcd
from noonday.cli.server.kafka_checks import check_kafka
from noonday.cli.server.postgres_checks import check_postgres
from noonday.cli.server.redis_checks import check_redis
from noonday.crypto.keyring import Keyring, new_env_value
from noonday.drivers.etcd.gateway import EtcdOptions, Gateway
from noonday.drivers.kafka.bus import KafkaBus
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.redis.hot_index import RedisHotIndex
from noonday.drivers.redis.reference import RedisReference
from noonday.drivers.redis.signals import RedisSignals
from noonday.model.errors import LeasesUnavailable, SignalsUnavailable, StoreUnavailable
from noonday.model.ids import ExecutionId, InstanceId
from noonday.model.message import Tick
from noonday.runtime.clock import SystemClock
from noonday.wiring.cluster.servers import kafka_options, leases_of, postgres_options, redis_connection
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings
from servers import Authority, Certificate, Etcd, Kafka, Postgres, Redis, free_port, free_ports
from tests.support.eventually import eventually
from tests.support.factories import entry

pytestmark = pytest.mark.slow

PASSWORD, WRONG = "s3cret-s3cret", "guess-guess"
ME = InstanceId("i-test")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Authority(tmp_path_factory.mktemp("authority")).issue("server")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that did not sign the servers' certificate."""
    return Authority(tmp_path_factory.mktemp("stranger")).certificate


def settings_of(**fields: str | Path) -> Settings:
    """Settings from environment variables."""
    environment = {f"NOONDAY_{name.upper()}": str(value) for name, value in fields.items()}
    return load_settings({}, {"NOONDAY_KEYS": new_env_value(), **environment}, Path("/dev/null"))


Check = Callable[[CheckContext], AsyncIterator[Finding]]


async def findings(check: Check, settings: Settings) -> dict[str, Finding]:
    return {finding.about: finding async for finding in check(CheckContext(settings, SystemClock().now_ms()))}


def failures(found: dict[str, Finding]) -> set[str]:
    return {about for about, finding in found.items() if finding.level is Level.FAIL}


async def finds(check: Check, settings: Settings, failing: set[str]) -> bool:
    return failures(await findings(check, settings)) == failing


async def advises(check: Check, settings: Settings, about: str, advice: str) -> bool:
    return advice in ((await findings(check, settings))[about].fix or "")


@pytest.fixture
def postgres(tmp_path: Path, certificate: Certificate) -> Iterator[Postgres]:
    with Postgres(tmp_path / "pg", free_port(), password=PASSWORD, certificate=certificate, throwaway=True) as server:
        yield server


async def test_postgres(postgres: Postgres, certificate: Certificate, stranger: Path) -> None:
    url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{postgres.port}/noonday"
    settings = settings_of(postgres_url=url, postgres_ca_file=certificate.authority)
    database = await PostgresDatabase.open(postgres_options(settings))
    try:
        await migrate(database)
        assert await database.value("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    finally:
        await database.close()
    assert failures(await findings(check_postgres, settings)) == set()

    for given, complaint in {
        (url.replace(PASSWORD, WRONG), certificate.authority): "password authentication failed",
        (url, stranger): "certificate verify failed",
    }.items():
        wrong = settings_of(postgres_url=given[0], postgres_ca_file=given[1])
        with pytest.raises(StoreUnavailable, match=complaint):
            await PostgresDatabase.open(postgres_options(wrong))
        found = (await findings(check_postgres, wrong))["postgres"]
        assert (found.level, WRONG in found.detail) == (Level.FAIL, False)
        assert "postgres." in (found.fix or "")


async def test_a_role_that_owns_its_database_is_all_that_postgres_has_to_give(
    postgres: Postgres, certificate: Certificate
) -> None:
    postgres.run_sql(f"CREATE ROLE noonday LOGIN PASSWORD '{PASSWORD}'")
    postgres.run_sql("CREATE DATABASE jobs OWNER noonday")
    url = f"postgresql://noonday:{PASSWORD}@127.0.0.1:{postgres.port}/jobs"
    settings = settings_of(postgres_url=url, postgres_ca_file=certificate.authority)
    database = await PostgresDatabase.open(postgres_options(settings))
    await migrate(database)
    await database.close()
    assert failures(await findings(check_postgres, settings)) == set()


@pytest.fixture
def redis(tmp_path: Path, certificate: Certificate) -> Iterator[Redis]:
    with Redis(tmp_path / "redis", free_port(), password=PASSWORD, certificate=certificate) as server:
        yield server


async def test_redis(redis: Redis, certificate: Certificate, stranger: Path) -> None:
    settings = settings_of(redis_url=redis.url, redis_ca_file=certificate.authority)
    assert redis.url.startswith(f"rediss://:{PASSWORD}@")
    assert await ping(settings) == b"PONG"
    assert failures(await findings(check_redis, settings)) == set()

    wrong = settings_of(redis_url=redis.url.replace(PASSWORD, WRONG), redis_ca_file=certificate.authority)
    strange = settings_of(redis_url=redis.url, redis_ca_file=stranger)
    plain = settings_of(redis_url=redis.url.replace("rediss:", "redis:"))
    for refused in (wrong, strange, plain):
        with pytest.raises(SignalsUnavailable):
            await ping(refused)
    assert "check user and password" in ((await findings(check_redis, wrong))["redis"].fix or "")
    assert "redis.ca_file" in ((await findings(check_redis, strange))["redis"].fix or "")
    assert "rediss://" in ((await findings(check_redis, plain))["redis"].fix or "")


async def test_a_user_of_redis_needs_its_own_prefix_only(redis: Redis, certificate: Certificate) -> None:
    admin = redis_connection(settings_of(redis_url=redis.url, redis_ca_file=certificate.authority))
    rights = ["~noonday:*", "&noonday:*", "+@all", "-@dangerous", "+info", "+time"]
    await admin.ask("ACL", "SETUSER", "noonday", "on", f">{PASSWORD}", *rights, failing=SignalsUnavailable)
    await admin.close()
    fields = {"redis_url": redis.url.replace("//:", "//noonday:"), "redis_ca_file": certificate.authority}
    settings = settings_of(**fields, cluster_leases="redis")
    assert failures(await findings(check_redis, settings)) == set()
    assert await members(settings) == {ME}
    await use_all_of_it(settings)

    elsewhere = await findings(check_redis, settings_of(**fields, cluster_name="other"))
    assert failures(elsewhere) == {"redis rights"}
    assert "~other:*" in (elsewhere["redis rights"].fix or "")


async def use_all_of_it(settings: Settings) -> None:
    """Use every operation of Redis. Raises Unavailable if any of them is refused."""
    connection = redis_connection(settings)
    clock = SystemClock()
    signals, index = RedisSignals(connection), RedisHotIndex(connection, clock, 0)
    try:
        await RedisReference(connection).note(_now_of(clock))
        await signals.begin_generation("demo")
        assert await signals.has_generation("demo")
        await signals.revoke("demo", [(ExecutionId(str(uuid4())), 1, "cancelled")])
        due = entry(due_ms=clock.now_ms())
        await index.generations([due.partition])
        await index.add([due])
        assert await index.missing([due]) == []
    finally:
        await index.close()
        await connection.close()


async def ping(settings: Settings) -> Any:
    connection = redis_connection(settings)
    try:
        return await connection.ask("PING", failing=SignalsUnavailable)
    finally:
        await connection.close()


@pytest.fixture
def etcd(tmp_path: Path, certificate: Certificate) -> Iterator[Etcd]:
    with Etcd(tmp_path / "etcd", free_ports(2), 1, password=PASSWORD, certificate=certificate) as server:
        yield server


async def test_etcd(etcd: Etcd, certificate: Certificate, stranger: Path) -> None:
    fields = {"etcd_urls": etcd.url, "etcd_user": "root", "etcd_password": PASSWORD, "redis_url": "redis://127.0.0.1:1"}
    settings = settings_of(**fields, etcd_ca_file=certificate.authority)
    assert await members(settings) == {ME}
    await eventually(partial(finds, check_etcd, settings, set()))

    wrong = settings_of(**{**fields, "etcd_password": WRONG}, etcd_ca_file=certificate.authority)
    with pytest.raises(LeasesUnavailable, match="authentication failed"):
        await members(wrong)
    await eventually(partial(advises, check_etcd, wrong, "etcd", "etcd.password"))
    strange = settings_of(**fields, etcd_ca_file=stranger)
    with pytest.raises(LeasesUnavailable, match="certificate verify failed"):
        await members(strange)
    await eventually(partial(advises, check_etcd, strange, "etcd", "etcd.ca_file"))


async def test_a_user_of_etcd_needs_its_own_prefix_only(etcd: Etcd, certificate: Certificate) -> None:
    root = Gateway([etcd.url], EtcdOptions(certificate.authority, user="root", password=PASSWORD, timeout_sec=30))
    permission = {"permType": "READWRITE", "key": b"noonday/", "range_end": b"noonday0"}
    for path, body in (
        ("auth/user/add", {"name": "noonday", "password": PASSWORD}),
        ("auth/role/add", {"name": "noonday"}),
        ("auth/role/grant", {"name": "noonday", "perm": permission}),
        ("auth/user/grant", {"user": "noonday", "role": "noonday"}),
    ):
        await root.call(path, body, dict)
    await root.close()
    fields = {"etcd_urls": etcd.url, "etcd_user": "noonday", "etcd_password": PASSWORD}
    settings = settings_of(**fields, etcd_ca_file=certificate.authority, redis_url="redis://127.0.0.1:1")
    await eventually(partial(finds, check_etcd, settings, set()))
    assert await members(settings) == {ME}

    elsewhere = settings_of(**fields, etcd_ca_file=certificate.authority, cluster_name="other")
    await eventually(partial(finds, check_etcd, elsewhere, {"lease"}))
    await eventually(partial(advises, check_etcd, elsewhere, "lease", "other/"))


async def members(settings: Settings) -> set[InstanceId]:
    """The members, after we have joined. As in a process, a request that gets no answer in time is made again.

    etcd hashes the password for each login, which takes long on a busy machine.
    """
    while True:
        try:
            return await _members(settings)
        except LeasesUnavailable as error:
            if "no answer within" not in error.detail:
                raise


async def _members(settings: Settings) -> set[InstanceId]:
    redis = redis_connection(settings)
    leases = leases_of(settings, "scheduler", redis)
    try:
        await leases.join(ME, 1.0)
        there = set(await leases.members())
        await leases.leave()
    finally:
        await leases.close()
        await redis.close()
    return there


@pytest.fixture
def kafka(tmp_path: Path, certificate: Certificate) -> Iterator[Kafka]:
    with Kafka(
        tmp_path / "kafka", free_ports(2), 1, password=PASSWORD, certificate=certificate, throwaway=True
    ) as server:
        yield server


async def test_kafka(kafka: Kafka, certificate: Certificate, stranger: Path) -> None:
    fields = {
        "kafka_servers": kafka.url,
        "kafka_user": "noonday",
        "kafka_password": PASSWORD,
        "kafka_mechanism": "PLAIN",
        "kafka_log_partitions": "1",
    }
    settings = settings_of(**fields, kafka_ca_file=certificate.authority)
    tick = Tick(ME, 1, 1)
    assert await read_back(tick, settings) == [tick]
    assert failures(await findings(check_kafka, settings)) == set()

    wrong = settings_of(**{**fields, "kafka_password": WRONG}, kafka_ca_file=certificate.authority)
    found = (await findings(check_kafka, wrong))["kafka"]
    assert (found.level, WRONG in found.detail) == (Level.FAIL, False)
    assert "kafka.password" in (found.fix or "")
    strange = settings_of(**fields, kafka_ca_file=stranger)
    assert "kafka.ca_file" in ((await findings(check_kafka, strange))["kafka"].fix or "")


async def read_back(tick: Tick, settings: Settings) -> list[Any]:
    """The log, after we have written to it."""
    keyring = Keyring.from_env_value(settings.encryption.keys or "")
    bus = KafkaBus(kafka_options(settings), keyring, SystemClock())
    try:
        await bus.report(0, [tick])
        return list((await bus.read(0, 0, 10, wait_sec=10)).entries)
    finally:
        await bus.close()


def _now_of(clock: SystemClock) -> Callable[[], Awaitable[int]]:
    async def now_ms() -> int:
        return clock.now_ms()

    return now_ms
