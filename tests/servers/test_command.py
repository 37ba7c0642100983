"""The output of `scripts/servers`, without starting a server."""

import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers import at_least, free_port, pins
from tests.docs.pages import table
from tests.servers.clone import Clone


@contextmanager
def a_server_that_replies(*replies: bytes) -> Iterator[int]:
    """A server that sends these replies, in this order, on each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                with line:
                    for reply in replies:
                        line.recv(1024)
                        line.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_help_names_every_command(clone: Clone) -> None:
    output = clone.run("--help").stdout
    assert all(f"\n    {command} " in output for command in ("install", "start", "stop", "status", "wipe", "env"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["begin"], "invalid choice: 'begin'"),
        (["start", "--only", "postgress"], "unknown server 'postgress'; the servers are postgres, redis, etcd, kafka"),
        (["start", "--nodes", "2"], "invalid choice: 2"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_unknown_argument_is_named(clone: Clone, words: list[str], complaint: str) -> None:
    ran = clone.run(*words)
    assert ran.returncode == 2
    assert complaint in ran.stderr


def test_missing_programs_that_cannot_be_installed_are_listed_with_both_remedies(clone: Clone, tmp_path: Path) -> None:
    ran = clone.run("install", "--only", "redis,kafka", PATH=_only_programs(tmp_path, "python3", "bash", "dirname"))
    assert ran.returncode == 1
    assert "this system has no apt-get" in ran.stderr
    assert "apt-get install redis-server" in ran.stderr
    assert "apt-get install openjdk-17-jre-headless maven" in ran.stderr
    assert "export NOONDAY_REDIS_URL=" in ran.stderr
    assert "export NOONDAY_KAFKA_SERVERS=" in ran.stderr


def test_server_that_is_not_installed_is_not_started(clone: Clone, tmp_path: Path) -> None:
    ran = clone.run("start", "--only", "redis", PATH=_only_programs(tmp_path, "python3", "bash", "dirname"))
    assert ran.returncode == 1
    assert "redis is not installed (missing: redis-server): run scripts/servers install" in ran.stderr


def test_an_old_java_does_not_do(clone: Clone, tmp_path: Path) -> None:
    path = _only_programs(tmp_path, "python3", "bash", "dirname")
    _program(Path(path) / "java", "echo 'openjdk version \"1.8.0_392\"' >&2")
    assert "openjdk-17-jre-headless" in clone.run("install", "--only", "kafka", PATH=path).stderr


def test_a_server_of_the_users_own_is_neither_installed_nor_started(clone: Clone) -> None:
    with a_server_that_replies(b"+PONG\r\n") as port:
        url = f"redis://127.0.0.1:{port}/3"
        for command in ("install", "start"):
            ran = clone.run(command, "--only", "redis", NOONDAY_REDIS_URL=url)
            assert ran.returncode == 0
            assert "redis: your own server responds" in ran.stderr
        assert f"NOONDAY_REDIS_URL={url}" in ran.stdout
        status = clone.run("status", "--only", "redis", NOONDAY_REDIS_URL=url).stdout
        assert status.splitlines()[1].split() == ["redis", "yours", f"127.0.0.1:{port}", "-", "up", "-"]
    assert not (clone.folder / "var/servers/redis").exists()


def test_a_server_of_the_users_own_that_is_silent_is_an_error(clone: Clone) -> None:
    ran = clone.run("start", "--only", "etcd", NOONDAY_ETCD_URLS=f"http://127.0.0.1:{free_port()}")
    assert ran.returncode == 1
    assert "your own server does not respond: start it, or unset NOONDAY_ETCD_URLS" in ran.stderr


def test_a_kafka_of_the_users_own_may_want_a_password(clone: Clone) -> None:
    with a_server_that_replies(b"\0\0\0\x0a\0\0\0\1\0\0\0\0\0\0") as port:
        servers = f"127.0.0.1:{free_port()},127.0.0.1:{port}"
        ran = clone.run("start", "--only", "kafka", NOONDAY_KAFKA_SERVERS=servers)
    assert ran.returncode == 0, ran.stderr


def test_the_password_of_the_users_own_server_is_not_shown(clone: Clone) -> None:
    with a_server_that_replies(b"+OK\r\n", b"+PONG\r\n") as port:
        ran = clone.run("start", "--only", "redis", NOONDAY_REDIS_URL=f"redis://me:s3cret@127.0.0.1:{port}/0")
    assert "s3cret" not in ran.stdout + ran.stderr
    assert "redis://me:***@" in ran.stdout


def test_a_port_that_is_no_number_is_an_error_that_shows_no_password(clone: Clone) -> None:
    ran = clone.run("status", NOONDAY_REDIS_URL="redis://:s3cret@here:port/0")
    assert ran.returncode == 2
    assert "NOONDAY_REDIS_URL" in ran.stderr
    assert "s3cret" not in ran.stderr


def test_our_own_address_in_the_environment_does_not_make_it_the_users(clone: Clone) -> None:
    exports = dict(line.removeprefix("export ").split("=", 1) for line in clone.run("env").stdout.splitlines())
    assert set(exports) == {"NOONDAY_POSTGRES_URL", "NOONDAY_REDIS_URL", "NOONDAY_ETCD_URLS", "NOONDAY_KAFKA_SERVERS"}
    assert "yours" not in clone.run("status", **exports).stdout


def test_a_clone_moves_to_other_ports_when_its_own_are_taken(clone: Clone) -> None:
    port = free_port()
    clone.use_port(26379, port)
    with socket.create_server(("127.0.0.1", port)):
        url = clone.run("env", "--only", "redis").stdout.strip()
    moved = int(url.rpartition(":")[2].removesuffix("/0"))
    assert moved > port
    assert (moved - port) % 100 == 0


def test_no_two_servers_share_a_port() -> None:
    ports = [port + 10 * node for pin in pins().values() for port in pin.ports for node in range(3)]
    assert len(set(ports)) == len(ports)


def test_the_page_names_the_pinned_versions_and_ports() -> None:
    rows = table("howto/run-the-servers.md", "server", "version", "port")
    told = {server.replace("PostgreSQL", "postgres").lower(): (version, int(port)) for server, version, port, _ in rows}
    assert told == {name: (pin.version, pin.ports[0]) for name, pin in pins().items() if pin.ports}


def test_the_jars_are_of_the_pinned_version() -> None:
    kafka = pins()["kafka"]
    names = [f"{artifact}-{version}.jar" for _, artifact, version in (each.split(":") for each in kafka.artifacts)]
    assert f"kafka_2.13-{kafka.version}.jar" in names
    assert set(names) <= set(kafka.jars)


@pytest.mark.parametrize(
    ("version", "wanted", "enough"),
    [("15.18", "15", True), ("14.9", "15", False), ("7.0.15", "7", True), ("17", "15", True), ("3.10", "3.4", True)],
)
def test_a_version_is_the_least_that_is_accepted(version: str, wanted: str, enough: bool) -> None:
    assert at_least(version, wanted) is enough


def _only_programs(folder: Path, *names: str) -> str:
    """A PATH with these programs alone."""
    path = folder / "bin"
    path.mkdir()
    for name in names:
        (path / name).symlink_to(sys.executable if name == "python3" else str(shutil.which(name)))
    return str(path)


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
