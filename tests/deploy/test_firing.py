"""The threshold alerts fire in a real Prometheus that scrapes a server with failures, lateness, a backlog and too few
slots."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noonday.crypto.tokens import mint
from noonday.model.job import JobSpec, JobType, Target
from noonday.sdk.sync import SyncClient
from servers import free_port
from tests.cli.serving import Up, eventually
from tests.deploy.test_prometheus import RULES

THRESHOLDS = {"NoondayFailureRate", "NoondayLate", "NoondayQueueDeep", "NoondayWorkersBusy"}
LOOK_EVERY_SEC = 0.25
SECRET = "a secret of this test, which nobody else has"
APP = """
import asyncio

from noonday import Context, DoNotRetry, Noonday

app = Noonday()


@app.handler("shop.fail", pool="shop")
async def fail(ctx: Context) -> None:
    raise DoNotRetry("as it was told to")


@app.handler("shop.wait", pool="shop")
async def wait(ctx: Context) -> None:
    await asyncio.sleep(0.5)
"""
CONFIG = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [rules.yml]
scrape_configs:
  - job_name: noonday
    static_configs: [{{ targets: ["{target}"], labels: {{ role: api }} }}]
"""


def in_seconds(rules: str) -> str:
    """Return the shipped rules with seconds instead of minutes, so that the test is short. promtool tests the real
    durations."""
    quick = re.sub(r"\[5m\]", "[15s]", rules)
    quick = re.sub(r"for: \dm", "for: 3s", quick)
    return quick.replace("interval: 1m", "interval: 1s")


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Start a Prometheus that scrapes a server. Yields its URL."""
    (folder / "rules.yml").write_text(in_seconds(RULES))
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=tsdb",
                f"--web.listen-address={address}",
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def scraped(url: str, metric: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?query={metric}", timeout=60) as answer:
            return bool(json.load(answer)["data"]["result"])
    except OSError:
        return False


def firing(url: str) -> set[str]:
    time.sleep(LOOK_EVERY_SEC)
    try:
        with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=60) as answer:
            alerts = json.load(answer)["data"]["alerts"]
    except OSError:
        return set()
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def of(handler: str, count: int) -> list[JobSpec]:
    return [JobSpec(type=JobType.ONE_TIME, target=Target("shop", handler)) for _ in range(count)]


@pytest.mark.slow
def test_thresholds_fire_in_a_real_prometheus_and_only_then(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus: scripts/servers install")
    (tmp_path / "shop.py").write_text(APP)
    environ = {"NOONDAY_WORKER_CONCURRENCY": "2", "NOONDAY_AUTH_SECRET": SECRET}
    token = mint(SECRET, tenant="default", subject="t", scopes=["write"], ttl_seconds=86_400, now=time.time())
    with (
        Up(tmp_path, "shop:app", "--port", "0", environ=environ) as up,
        prometheus(tmp_path, up.url.removeprefix("http://")) as url,
        SyncClient(up.url, token) as client,
    ):
        eventually(lambda: scraped(url, "noonday_worker_slots"))
        assert not firing(url) & THRESHOLDS
        # Failures come all the time, because a machine under load scrapes seldom.
        client.create_many([spec for _ in range(300) for spec in (*of("shop.fail", 1), *of("shop.wait", 5))])
        fired: set[str] = set()
        eventually(lambda: fired.update(firing(url)) or fired >= THRESHOLDS, deadline_sec=300)
