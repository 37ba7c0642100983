"""The addresses of the servers of a cluster."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.servers import SERVERS, addresses, find_servers

from bench import BenchFailed


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("postgresql://me:secret@db/noonday", [("db", 5)]),
        ("postgresql://me:secret@one:1,two:2/noonday?sslmode=require", [("one", 1), ("two", 2)]),
        ("postgresql:///noonday", [("localhost", 5)]),
        ("redis://:p%40ss@[::1]:26379/0", [("::1", 26379)]),
        ("one:1, two", [("one", 1), ("two", 5)]),
        ("http://one:1,http://two:2", [("one", 1), ("two", 2)]),
    ],
)
def test_the_addresses_of_a_server(url: str, places: list[tuple[str, int]]) -> None:
    assert list(addresses(url, 5)) == places


def test_servers_that_are_named_are_used(port: int, tmp_path: Path) -> None:
    named = all_at(port)
    assert find_servers(named | {"HOME": "/"}, tmp_path) == named


def test_missing_server_address_is_an_error_that_names_the_start_command(port: int, tmp_path: Path) -> None:
    named = all_at(port)
    del named["NOONDAY_KAFKA_SERVERS"]
    with pytest.raises(BenchFailed, match=r"NOONDAY_KAFKA_SERVERS is not set.*make servers"):
        find_servers(named, tmp_path)


def test_a_clone_names_the_servers_that_the_environment_does_not(port: int, tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "servers"
    script.parent.mkdir()
    lines = [f"echo export {variable}='{url}'" for variable, url in all_at(port).items()]
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    script.chmod(0o755)
    mine = {"NOONDAY_REDIS_URL": f"redis://127.0.0.1:{port}/7"}
    assert find_servers(mine, tmp_path) == all_at(port) | mine


def test_a_server_that_does_not_answer_is_named(port: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    named = all_at(port) | {"NOONDAY_REDIS_URL": f"redis://:secret@127.0.0.1:{nobody}/0"}
    with pytest.raises(BenchFailed, match=r"Redis does not answer.*make servers") as failed:
        find_servers(named, tmp_path)
    assert "secret" not in str(failed.value)


def test_etcd_is_not_needed_where_redis_keeps_the_leases(port: int, tmp_path: Path) -> None:
    named = all_at(port)
    del named["NOONDAY_ETCD_URLS"]
    assert find_servers(named | {"NOONDAY_CLUSTER_LEASES": "redis"}, tmp_path) == named


def all_at(port: int) -> dict[str, str]:
    return {server.variable: f"127.0.0.1:{port}" for server in SERVERS}
