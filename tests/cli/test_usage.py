import csv
import json
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any
from urllib.request import urlopen

import pytest

from noonday.cli import exits
from noonday.cli.instants import now
from tests.cli.conftest import Run
from tests.cli.serving import Up, eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server without other jobs."""
    with Up(tmp_path_factory.mktemp("usage"), "--port", "0", environ={"NOONDAY_METRICS_TENANTS": "true"}) as up:
        yield up


@pytest.fixture
def used(ask: Run) -> dict[str, Any]:
    """The usage after a job has succeeded and another has died."""
    if not _total(ask)["runs"]:
        ask("job", "create", "--handler", "demo.echo", "--payload", '{"a": 1, "b": 2}')
        ask("job", "create", "--handler", "demo.fail", "--payload", '{"times": 9}', "--max-attempts", "1")
    return eventually(lambda: (total := _total(ask))["runs"] == 2 and total)  # type: ignore[no-any-return]


def _total(ask: Run) -> dict[str, Any]:
    return json.loads(ask("tenant", "usage", "default", "--json").stdout)["total"]  # type: ignore[no-any-return]


@pytest.mark.slow
def test_runs_are_counted_with_their_outcome_and_payload(used: dict[str, Any]) -> None:
    assert (used["succeeded"], used["failed"]) == (1, 1)
    # The payload as the worker received it: encrypted.
    assert used["payloadBytes"] > len('{"a":1,"b":2}')


def test_the_table_ends_with_the_total(ask: Run, used: dict[str, Any]) -> None:
    head, *days, total = (line.split() for line in ask("tenant", "usage", "default").stdout.splitlines())
    assert head == ["DAY", "RUNS", "SUCCEEDED", "FAILED", "RUN", "SECONDS", "PAYLOAD", "BYTES"]
    assert [sum(int(day[at]) for day in days) for at in (1, 2, 3)] == [2, 1, 1]
    assert total == ["total", "2", "1", "1", f"{used['runSeconds']:.3f}", str(used["payloadBytes"])]


def test_csv_has_a_line_a_day_and_no_total(ask: Run, used: dict[str, Any]) -> None:
    rows = list(csv.DictReader(ask("tenant", "usage", "default", "--csv").stdout.splitlines()))
    assert {row["tenant"] for row in rows} == {"default"}
    assert sum(int(row["runs"]) for row in rows) == 2
    assert all(date.fromisoformat(row["day"]) <= now().date() for row in rows)


def test_the_days_can_be_chosen(ask: Run, used: dict[str, Any]) -> None:
    long_ago = ask("tenant", "usage", "default", "--from", "2020-01-01", "--to", "2020-01-31", "--json").stdout
    assert (json.loads(long_ago)["from"], json.loads(long_ago)["days"]) == ("2020-01-01", [])
    recent = (now().date() - timedelta(days=1)).isoformat()
    assert json.loads(ask("tenant", "usage", "default", "--from", recent, "--json").stdout)["total"] == used


def test_metrics_name_the_tenant_if_the_setting_is_on(server: Up, used: dict[str, Any]) -> None:
    with urlopen(f"{server.url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'noonday_tenant_runs_total{outcome="FAILED",tenant="default"} 1.0' in text


def test_invalid_day_is_refused(ask: Run) -> None:
    result = ask("tenant", "usage", "default", "--from", "yesterday")
    assert result.exit_code == exits.USAGE
    assert "write YYYY-MM-DD" in result.stderr


def test_one_format_is_enough(ask: Run) -> None:
    assert "--json and --csv are mutually exclusive" in ask("tenant", "usage", "default", "--json", "--csv").stderr
