"""`noonday doctor` with a configured cluster: on real servers, on wrong ones and on none."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from noonday.cli import exits
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring, new_env_value
from noonday.drivers.kafka.options import KafkaOptions
from noonday.drivers.redis.connection import connect
from noonday.model.errors import SignalsUnavailable
from servers import Redis, free_port
from tests.cli.conftest import Run
from tests.support.kafka import delete_topics
from tests.support.servers_up import etcd_urls, kafka_servers, postgres_url, redis_url

pytestmark = pytest.mark.slow

Environment = dict[str, str]
Findings = dict[str, dict[str, Any]]
Examined = Callable[..., Findings]
PASSWORD = "hush-hush-hush"


@pytest.fixture
def environment() -> Iterator[Environment]:
    """The settings of a new cluster on the servers that all tests share. Nothing has been prepared for it yet."""
    name = f"test-{uuid4().hex[:12]}"
    environment = {
        "NOONDAY_POSTGRES_URL": postgres_url(),
        "NOONDAY_REDIS_URL": redis_url(),
        "NOONDAY_KAFKA_SERVERS": kafka_servers(),
        "NOONDAY_ETCD_URLS": ",".join(etcd_urls()),
        "NOONDAY_CLUSTER_NAME": name,
        "NOONDAY_POSTGRES_SCHEMA": name.replace("-", "_"),
        "NOONDAY_KEYS": new_env_value(),
        "NOONDAY_AUTH_SECRET": "s" * 32,
    }
    yield environment
    change(f"DROP SCHEMA IF EXISTS {environment['NOONDAY_POSTGRES_SCHEMA']} CASCADE")
    delete_topics(KafkaOptions(kafka_servers(), prefix=name))


@pytest.fixture
def migrated(environment: Environment, run: Run) -> Environment:
    assert run("migrate", env=environment).exit_code == 0
    return environment


@pytest.fixture
def examined(run: Run) -> Examined:
    def findings(environment: Environment, *words: str, code: int = exits.FAILED) -> Findings:
        result = run("doctor", "--json", *words, env=environment)
        assert result.exit_code == code, result.output
        assert PASSWORD not in result.output
        return {one["about"]: one for one in json.loads(result.stdout)}

    return findings


def failures(found: Findings) -> set[str]:
    return {about for about, one in found.items() if one["level"] == "fail"}


def change(*statements: str) -> None:
    with psycopg.connect(postgres_url(), autocommit=True) as session:
        for statement in statements:
            session.execute(statement)  # type: ignore[arg-type]


def test_servers_that_are_prepared_pass_every_check(examined: Examined, migrated: Environment) -> None:
    found = examined(migrated, code=exits.OK)
    assert failures(found) == set()
    assert set(found) >= {"python", "secret", "keys", "postgres", "durability", "connections", "db clock", "rights",
                          "migrations", "payloads", "redis", "memory", "append file", "redis rights", "redis clock",
                          "kafka", "topics", "copies", "etcd", "lease"}  # fmt: skip


def test_a_database_that_lacks_migrations_names_the_command(examined: Examined, environment: Environment) -> None:
    found = examined(environment)
    assert failures(found) == {"migrations"}
    assert found["migrations"]["fix"] == "noonday migrate"
    assert "can be created" in found["topics"]["detail"]


def test_a_database_of_a_newer_release_fails(examined: Examined, migrated: Environment) -> None:
    change(f"INSERT INTO {migrated['NOONDAY_POSTGRES_SCHEMA']}.migrations VALUES ('9999_future.sql', 'x', now())")
    found = examined(migrated)
    assert (failures(found), "newer" in found["migrations"]["detail"]) == ({"migrations"}, True)


def test_examining_leaves_nothing_behind(examined: Examined, migrated: Environment) -> None:
    examined(migrated, code=exits.OK)

    async def keys() -> Any:
        connection = connect(redis_url())
        try:
            name = migrated["NOONDAY_CLUSTER_NAME"]
            return await connection.ask("KEYS", f"{name}:*", failing=SignalsUnavailable)
        finally:
            await connection.close()

    assert asyncio.run(keys()) == []
    assert (
        AdminClient({"bootstrap.servers": kafka_servers()})
        .list_topics(timeout=5)
        .topics.keys()
        .isdisjoint({f"{migrated['NOONDAY_CLUSTER_NAME']}.events"})
    )


def test_keys_that_do_not_decrypt_stored_payloads_fail(examined: Examined, migrated: Environment) -> None:
    store_job(migrated["NOONDAY_POSTGRES_SCHEMA"], Keyring.from_env_value(migrated["NOONDAY_KEYS"]))
    assert "1 sampled" in examined(migrated, code=exits.OK)["payloads"]["detail"]
    found = examined({**migrated, "NOONDAY_KEYS": new_env_value()})
    assert failures(found) == {"payloads"}
    assert "1 of 1 cannot be decrypted" in found["payloads"]["detail"]


def store_job(schema: str, ring: Keyring) -> None:
    job_id = str(uuid4())
    columns = "tenant, id, revision, state, lane, watch, anchor_ms, created_ms, updated_ms, type, pool, handler, spec"
    with psycopg.connect(postgres_url(), autocommit=True) as session:
        session.execute(
            f"INSERT INTO {schema}.jobs ({columns}, payload) "  # type: ignore[arg-type]
            "VALUES ('default', %s, 1, 0, 1, 0, 0, 0, 0, 'ONE_TIME', 'demo', 'demo.echo', '{}', %s)",
            (job_id, ring.seal(b'"hello"', context_of("default", job_id))),
        )


def test_database_user_that_cannot_create_the_schema_is_an_error_with_the_remedy(
    examined: Examined, environment: Environment
) -> None:
    role = f"test_{uuid4().hex[:12]}"
    change(f"CREATE ROLE {role} LOGIN")
    try:
        found = examined({**environment, "NOONDAY_POSTGRES_URL": postgres_url().replace("postgres@", f"{role}@")})
    finally:
        change(f"DROP ROLE {role}")
    assert failures(found) == {"rights"}
    assert found["rights"]["fix"].endswith(f"AUTHORIZATION {role}")


def test_database_user_that_does_not_own_the_tables_is_an_error(examined: Examined, migrated: Environment) -> None:
    role, schema = f"test_{uuid4().hex[:12]}", migrated["NOONDAY_POSTGRES_SCHEMA"]
    change(f"CREATE ROLE {role} LOGIN", f"GRANT ALL ON SCHEMA {schema} TO {role}")
    try:
        found = examined({**migrated, "NOONDAY_POSTGRES_URL": postgres_url().replace("postgres@", f"{role}@")})
    finally:
        change(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert (failures(found), "does not own" in found["rights"]["detail"]) == ({"rights"}, True)


def test_each_missing_server_is_named_with_the_remedy(examined: Examined, environment: Environment) -> None:
    nowhere = {
        "NOONDAY_POSTGRES_URL": f"postgresql://me:{PASSWORD}@127.0.0.1:1/noonday",
        "NOONDAY_REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:1/0",
        "NOONDAY_KAFKA_SERVERS": "127.0.0.1:1",
        "NOONDAY_ETCD_URLS": "http://127.0.0.1:1",
    }
    found = examined(environment | nowhere)
    assert failures(found) == {"postgres", "redis", "kafka", "etcd"}
    for about, setting in {"postgres": "url", "redis": "url", "kafka": "servers", "etcd": "urls"}.items():
        assert "127.0.0.1" in found[about]["detail"]
        assert f"{about}.{setting}" in found[about]["fix"]


@pytest.mark.parametrize(("variable", "about"), [("NOONDAY_POSTGRES_URL", "postgres"), ("NOONDAY_REDIS_URL", "redis")])
def test_a_password_that_breaks_its_url_is_not_shown(
    examined: Examined, environment: Environment, variable: str, about: str
) -> None:
    scheme = environment[variable].partition("://")[0]
    found = examined({**environment, variable: f"{scheme}://me:{PASSWORD}/{PASSWORD}@127.0.0.1:1/0"})
    assert "%2F" in found[about]["fix"]


def test_wrong_redis_password_is_reported_with_the_remedy(
    examined: Examined, environment: Environment, tmp_path: Path
) -> None:
    with Redis(tmp_path / "redis", free_port(), password="another") as server:
        url = server.url.replace("another", PASSWORD)
        found = examined({**environment, "NOONDAY_REDIS_URL": url})
    assert "check user and password" in found["redis"]["fix"]


def test_redis_that_evicts_fails_and_one_that_forgets_is_warned_of(
    examined: Examined, migrated: Environment, tmp_path: Path
) -> None:
    careless = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru", "appendonly": "no"}
    with Redis(tmp_path / "redis", free_port(), settings=careless) as server:
        found = examined({**migrated, "NOONDAY_REDIS_URL": server.url})
    assert failures(found) == {"memory"}
    assert found["append file"]["level"] == "warn"
    assert "noeviction" in found["memory"]["fix"]
    assert "loses no job" in found["append file"]["detail"]


def test_an_events_topic_that_forgets_too_soon_or_takes_too_little_fails(
    examined: Examined, migrated: Environment
) -> None:
    topic = f"{migrated['NOONDAY_CLUSTER_NAME']}.events"
    settings = {"retention.ms": "60000", "max.message.bytes": "1000"}
    admin = AdminClient({"bootstrap.servers": kafka_servers()})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(10)
    found = examined(migrated)
    assert failures(found) == {"retention", "messages"}
    assert topic in found["retention"]["fix"]


def test_more_copies_than_brokers_cannot_be_made(examined: Examined, migrated: Environment) -> None:
    found = examined({**migrated, "NOONDAY_KAFKA_REPLICATION": "9"})
    assert failures(found) == {"topics"}
    assert "kafka.replication" in found["topics"]["fix"]


def test_one_endpoint_of_three_that_is_away_is_a_warning(examined: Examined, migrated: Environment) -> None:
    here = etcd_urls()[0]
    found = examined({**migrated, "NOONDAY_ETCD_URLS": f"{here},{here},http://127.0.0.1:1"}, code=exits.OK)
    assert found["etcd"]["level"] == "warn"
    assert found["lease"]["level"] == "ok"


def test_leases_of_redis_need_no_etcd(examined: Examined, migrated: Environment) -> None:
    alone = {**migrated, "NOONDAY_ETCD_URLS": "", "NOONDAY_CLUSTER_LEASES": "redis"}
    found = examined(alone, code=exits.OK)
    assert "etcd" not in found
    assert found["lease"]["detail"].startswith("Redis granted one")


def test_a_missing_setting_is_named(examined: Examined, migrated: Environment) -> None:
    bare = {**migrated, "NOONDAY_KEYS": "", "NOONDAY_AUTH_SECRET": "", "NOONDAY_KAFKA_SERVERS": ""}
    found = examined(bare)
    assert failures(found) == {"keys", "secret", "kafka"}
    assert "noonday keys new" in found["keys"]["fix"]
    assert "NOONDAY_AUTH_SECRET" in found["secret"]["fix"]
    assert "NOONDAY_KAFKA_SERVERS" in found["kafka"]["detail"]


def test_a_file_that_is_named_is_examined_though_there_is_a_cluster(
    examined: Examined, environment: Environment
) -> None:
    found = examined(environment, "--data", "noonday.db", code=exits.OK)
    assert "file" in found
    assert "postgres" not in found
