"""Each example works when it is started as its reader would start it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noonday import testing
from noonday.sdk.loading import load_app
from tests.docs.conftest import Server
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "examples"


def run(name: str, folder: Path, environment: dict[str, str] | None = None, *, failure: str = "") -> list[str]:
    """Run an example, and return its output line by line. A warning is an error. `failure` is the one that it logs."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert (ran.stderr.splitlines() or [""])[-1] == failure
    return ran.stdout.splitlines()


def test_invoices_are_written_page_by_page(tmp_path: Path) -> None:
    assert run("invoices.py", tmp_path) == ["{'pages': 3}"]


async def test_the_nightly_job_of_the_invoices_runs_at_three_in_los_angeles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    app = load_app("invoices:app")
    async with testing.engine(app) as engine:  # type: ignore[arg-type]
        await engine.advance(days=1)
        (execution,) = engine.executions("daily-invoice-gen")
        assert f"{execution.scheduled_at:%H:%M}" == "11:00"


def test_the_tests_of_the_invoices_pass() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "no:cacheprovider",
        "test_invoices.py",
    ]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout
    assert "4 passed" in ran.stdout


def test_application_example_sends_its_request(tmp_path: Path) -> None:
    sent = ["ada@example.com: Welcome, Ada!", "grace@example.com: Welcome, Grace!"]
    assert run("embedded_app.py", tmp_path) == [f"sent {sent}"]


def test_both_pools_of_the_application_for_a_cluster_do_their_work(tmp_path: Path) -> None:
    assert run("cluster_app.py", tmp_path) == ["{'to': 2, 'be': 2, 'or': 1, 'not': 1}", "sent to ada@example.com"]


def test_the_report_is_rehearsed_over_both_changes_of_the_clocks(tmp_path: Path) -> None:
    assert run("cron_report.py", tmp_path) == [
        "spring ['report of Sun 29 Mar 03:30 CEST', 'report of Mon 30 Mar 02:30 CEST']",
        "autumn ['report of Sun 25 Oct 02:30 CEST', 'report of Mon 26 Oct 02:30 CET']",
    ]


def test_primes_are_counted_elsewhere(tmp_path: Path) -> None:
    counts = ["25 primes below 100", "168 primes below 1000", "1229 primes below 10000"]
    assert run("process_pool.py", tmp_path) == [*counts, "in other processes: True"]


def test_rows_are_copied_from_where_the_first_attempt_stopped(tmp_path: Path) -> None:
    assert run("progress.py", tmp_path, failure="ConnectionError: lost connection to the database at row 600") == [
        "attempt 2 began at row 600",
        "progress {'row': 1000, 'of': 1000}",
        "1 FAILED lost connection to the database at row 600",
        "2 SUCCEEDED ",
    ]


def test_a_program_without_a_loop_talks_to_a_server(server: Server, tmp_path: Path) -> None:
    output = run("client_sync.py", tmp_path, server.environment)
    assert output[:2] == ["echo {'hello': 'world'}", "batch 100 last 99"]
    assert output[2].startswith("next 03:00:00+0")
    assert output[3:] == [
        'refused minute "61": 61 is not from 0 to 59',
        "failed DEAD",
        "dead letter attempt 1 was told to fail",
    ]


def test_every_example_is_run() -> None:
    text = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in text] == []
