"""The output and the effects of `scripts/cluster`, as its user sees them."""

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis
from cluster.members import ROLES
from servers.ports import RANGE

from noonday.drivers.kafka.options import KafkaOptions
from servers import Daemon, eventually, is_free
from tests.docs.pages import ROOT
from tests.support.kafka import delete_topics
from tests.support.servers_up import kafka_servers, postgres_url, redis_url


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts" / "cluster"), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)


def some_ports() -> int:
    """The first of as many free ports in a row as there are processes."""
    while True:
        first = random.choice(RANGE)
        if all(is_free(first + index) for index in range(len(ROLES))):
            return first


def test_help_names_every_command_and_every_process() -> None:
    output = run("--help").stdout
    assert all(f"\n    {command} " in output for command in ("run", "start", "stop", "status", "env"))
    assert all(role in output for role in ROLES)


def test_ports_that_are_taken_are_named_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ran = run("run", "--folder", str(tmp_path), "--port", str(taken))
    assert ran.returncode == 1
    assert f"another process listens on {taken}" in ran.stderr
    assert f"make cluster PORT={taken + 1000}" in ran.stderr
    assert not (tmp_path / "noonday.toml").exists()


def test_a_name_that_no_server_would_take_is_refused(tmp_path: Path) -> None:
    ran = run("start", "--folder", str(tmp_path), "--name", "My Cluster")
    assert (ran.returncode, "lower-case letters" in ran.stderr) == (2, True)


@pytest.mark.parametrize("command", ["status", "env"])
def test_status_of_a_cluster_that_was_never_started_is_empty(tmp_path: Path, command: str) -> None:
    ran = run(command, "--folder", str(tmp_path))
    assert (ran.returncode, "scripts/cluster start" in ran.stderr) == (1, True)


def test_stopping_a_cluster_that_does_not_run_is_no_error(tmp_path: Path) -> None:
    assert "the cluster was not running" in run("stop", "--folder", str(tmp_path)).stderr


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started in the background."""

    folder: Path
    name: str
    port: int
    greeting: str

    def ask(self, command: str) -> subprocess.CompletedProcess[str]:
        return run(command, "--folder", str(self.folder))

    def pid(self, role: str) -> int | None:
        return Daemon(self.folder / role).pid

    def url(self, path: str, process: int = 0) -> str:
        return f"http://127.0.0.1:{self.port + process}{path}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder, name, port = tmp_path / "cluster", f"test-{uuid4().hex[:12]}", some_ports()
    started = run("start", "--folder", str(folder), "--name", name, "--port", str(port))
    try:
        assert started.returncode == 0, started.stderr
        yield Cluster(folder, name, port, started.stdout)
    finally:
        run("stop", "--folder", str(folder))
        forget(name)


def forget(name: str) -> None:
    """Delete everything of the cluster on the servers that all tests share."""
    with psycopg.connect(postgres_url(), autocommit=True) as session:
        session.execute(f"DROP SCHEMA IF EXISTS {name.replace('-', '_')} CASCADE")  # type: ignore[arg-type]
    with redis.from_url(redis_url()) as client:
        for key in client.scan_iter(f"{name}:*"):
            client.delete(key)
    delete_topics(KafkaOptions(kafka_servers(), prefix=name))


@pytest.mark.slow
def test_whole_cluster_runs_a_job_restarts_dead_processes_and_stops(cluster: Cluster) -> None:
    # One test, because a cluster starts slowly.
    assert all(cluster.url("/metrics", process) in cluster.greeting for process in range(len(ROLES)))
    assert_nobody_else_reads(cluster.folder)

    assert_job_succeeds(cluster)

    before = cluster.pid("scheduler-2")
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert eventually(lambda: cluster.pid("scheduler-2") not in (None, before), 20)
    assert "scheduler-2 ended" in (cluster.folder / "supervisor" / "server.log").read_text()

    assert "runs from" in run("start", "--folder", str(cluster.folder), "--port", str(cluster.port)).stderr
    assert cluster.ask("stop").returncode == 0
    assert [role for role in ROLES if cluster.pid(role)] == []
    status = cluster.ask("status")
    assert (status.returncode, status.stdout.count(" down")) == (1, len(ROLES))


def assert_nobody_else_reads(folder: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o077 for path in (folder / "keys", folder / "secret", folder)}
    assert set(modes.values()) == {0}, modes
    assert (folder / "noonday.toml").stat().st_mode & 0o777 == 0o600


def assert_job_succeeds(cluster: Cluster) -> None:
    """Create a job with the printed example command, and query it at the other API with the token for the shell."""
    (line,) = [line for line in cluster.greeting.splitlines() if line.startswith("curl ")]
    output = subprocess.run(shlex.split(line), capture_output=True, check=True, text=True).stdout
    assert "jobId" in output, output
    exports = dict(line.removeprefix("export ").split("=", 1) for line in cluster.ask("env").stdout.splitlines())
    path = f"/v1/jobs/{json.loads(output)['jobId']}/executions"

    def states() -> list[str]:
        return [one["state"] for one in get(cluster.url(path, process=1), exports["NOONDAY_TOKEN"])["executions"]]

    assert eventually(lambda: states() == ["SUCCEEDED"], 20), states()


def get(url: str, token: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
