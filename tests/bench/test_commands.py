"""`python -m bench`, with works so small that their speed means nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from bench.commands import conclude
from bench.report import is_flawless
from click.testing import CliRunner

from bench import ROOT
from noonday.cli.tables import ListTable
from tests.support.servers_up import etcd_urls, kafka_servers, postgres_url, redis_url

FIELDS = {"jobs", "recorded_per_s", "lateness_ms", "lost", "duplicated", "early", "cpu_us_per_job", "cpu_us_per_job_by",
          "rss_mb", "mode", "settings"}  # fmt: skip
ROLES = {"scheduler", "recorder", "worker", "api"}
SERVERS = {"postgres", "redis", "kafka", "etcd"}
PERCENTILES = {"p50", "p95", "p99", "max"}


@pytest.mark.slow
def test_a_burst_is_fired_and_recorded(tmp_path: Path) -> None:
    document = bench(tmp_path, "burst", "--jobs", "200", "--head-start", "2", "--mode", "embedded")
    assert document["jobs"] == document["fired"] == 200
    assert document["recorded_per_s"] > 0
    assert document["cpu_us_per_job"] > 0
    assert document["lateness_ms"]["max"] >= document["lateness_ms"]["p50"] > 0
    assert document["settings"]["synchronous"] == "FULL"


@pytest.mark.slow
def test_a_burst_on_a_cluster_is_fired_and_recorded(tmp_path: Path, servers: None) -> None:
    document = bench(tmp_path, "burst", "--jobs", "300", "--mode", "cluster", "--workers", "2", "--concurrency", "50")
    assert document["mode"] == "cluster"
    assert document["jobs"] == document["fired"] == 300
    assert document["recorded_per_s"] > 0
    assert document["lateness_ms"]["max"] >= document["lateness_ms"]["p50"] > 0
    assert set(document["cpu_us_per_job_by"]) == set(document["create_cpu_us_per_job_by"]) == ROLES | SERVERS
    assert document["cpu_us_per_job_by"]["worker"] > 0
    assert set(document["rss_mb_by"]) == ROLES
    assert all(rss > 0 for rss in document["rss_mb_by"].values())
    assert document["settings"]["workers"] == 2
    assert document["settings"]["concurrency"] == 50
    assert document["settings"]["synchronous_commit"] == "on"


@pytest.mark.slow
def test_handlers_wait_at_the_same_time(tmp_path: Path) -> None:
    document = bench(tmp_path, "waiting", "--jobs", "150", "--seconds", "2", "--head-start", "2")
    assert document["fired"] == document["at_once"] == document["settings"]["concurrency"] == 150


@pytest.mark.slow
def test_webhooks_are_called_at_the_same_time(tmp_path: Path) -> None:
    document = bench(tmp_path, "webhooks", "--calls", "150", "--seconds", "2", "--head-start", "2")
    assert document["fired"] == document["at_once"] == 150


@pytest.mark.slow
def test_webhooks_are_called_on_a_cluster(tmp_path: Path, servers: None) -> None:
    document = bench(tmp_path, "webhooks", "--calls", "300", "--mode", "cluster", "--workers", "2")
    assert document["fired"] == 300
    assert document["lateness_ms"]["max"] >= document["lateness_ms"]["p50"] > 0
    assert document["cpu_us_per_job_by"]["caller"] > 0


@pytest.mark.slow
def test_roles_are_counted_on_a_cluster_only(tmp_path: Path) -> None:
    ended = run(tmp_path, "burst", "--workers", "2")
    assert ended.returncode == 2
    assert "--workers is for --mode cluster" in ended.stderr


@pytest.mark.slow
def test_a_stream_is_fired_and_recorded(tmp_path: Path) -> None:
    document = bench(tmp_path, "stream", "--rate", "200", "--seconds", "1", "--head-start", "2")
    assert document["jobs"] == document["fired"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--by-cron", "--bunched"]], ids=["intervals", "crons"])
def test_crons_fire_as_often_as_expected(tmp_path: Path, kind: list[str]) -> None:
    document = bench(tmp_path, "crons", "--crons", "100", "--every", "1", "--seconds", "2", "--head-start", "2", *kind)
    assert document["jobs"] == 100
    assert document["fired"] == document["expected"] == 200


@pytest.mark.slow
def test_jobs_are_created_in_every_way(tmp_path: Path) -> None:
    document = bench(tmp_path, "create", "--jobs", "200", "--calls", "40")
    ways = [(way["way"], way["callers"], way["jobs"]) for way in document["ways"]]
    assert ways == [
        ("create_ids", None, 200),
        ("enqueue_many", None, 200),
        ("spec_for, enqueue_many", None, 200),
        ("HTTP, batches of 200", 1, 200),
        ("HTTP, batches of 200", 4, 200),
        ("HTTP, one by one", 1, 5),
        ("HTTP, one by one", 16, 40),
    ]
    assert all(way["created_per_s"] > 0 for way in document["ways"])


@pytest.mark.slow
def test_a_burst_is_compared_with_and_without_jobs_at_rest(tmp_path: Path) -> None:
    size = ["--at-rest", "200", "--crons", "50", "--jobs", "200", "--rate", "100", "--seconds", "1", "--rounds", "1"]
    document = bench(tmp_path, "rest", *size, "--head-start", "2")
    assert document["fired"] == 200
    for side in (document["before"], document["after"]):
        assert side["burst"]["fired"] == 200
        assert [stream["fired"] for stream in side["streams"]] == [100]
        assert side["startup_sec"] > 0
    assert set(document["change_percent"]) == {"recorded_per_s", "cpu_us_per_job", "burst_p99_ms", "streams_p99_ms"}


@pytest.mark.slow
def test_tenants_are_measured_together_with_the_cost_of_their_limits(tmp_path: Path) -> None:
    size = ["--due", "big=600", "--due", "small=20", "--weight", "small=2", "--max-running", "big=500"]
    document = bench(tmp_path, "tenants", *size, "--alone", "small", "--compare", "--head-start", "2")
    assert document["fired"] == 620
    assert {name: got["jobs"] for name, got in document["tenants"].items()} == {"big": 600, "small": 20}
    assert document["tenants"]["big"]["share"] + document["tenants"]["small"]["share"] == pytest.approx(1)
    assert list(document["alone"]["tenants"]) == ["small"]
    assert list(document["later_p95_ms"]) == ["small"]
    assert set(document["change_percent"]) == {"recorded_per_s", "cpu_us_per_job"}


@pytest.mark.slow
def test_tenants_that_have_nothing_due_cannot_be_limited(tmp_path: Path) -> None:
    ended = run(tmp_path, "tenants", "--due", "a=5", "--weight", "b=2")
    assert ended.returncode == 2
    assert "say --due b=N" in ended.stderr
    assert "'a' is not TENANT=N" in run(tmp_path, "tenants", "--due", "a").stderr


@pytest.mark.slow
def test_jobs_that_are_not_stored_in_time_void_the_measurement(tmp_path: Path) -> None:
    ended = run(tmp_path, "burst", "--jobs", "200", "--head-start", "0.01", "--json")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "--head-start" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["lost", "duplicated", "early"])
def test_exit_code_reports_a_failed_benchmark(wrong: str) -> None:
    document = dict.fromkeys(("lost", "duplicated", "early"), 0) | {"settings": {}, wrong: 3}

    @click.command()
    def command() -> None:
        conclude(document, True, ListTable())

    result = CliRunner().invoke(command)
    assert result.exit_code == 1
    assert f"3 {wrong}" in result.stderr
    assert json.loads(result.stdout)[wrong] == 3


@pytest.fixture
def servers() -> None:
    """The servers. If one does not answer, the test fails and names the start command."""
    postgres_url(), redis_url(), kafka_servers(), etcd_urls()


def bench(directory: Path, *arguments: str) -> dict[str, Any]:
    """Run a work. Returns its document, after checks that nothing went wrong and nothing was left behind."""
    ended = run(directory, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    assert set(document) >= FIELDS
    assert set(document["lateness_ms"]) == PERCENTILES
    assert is_flawless(document)
    assert list(directory.iterdir()) == []
    return document


def run(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench", *arguments, "--dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ, cwd=ROOT, check=False)
