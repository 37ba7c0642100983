"""The shipped rules are valid, fire as intended, and use only metrics that exist."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from cluster.cli import DEFAULT_PORT
from cluster.members import ROLES

from noonday.model.execution import State
from noonday.model.firing import DecisionOutcome
from noonday.runtime.metrics import Metrics
from tests.docs.pages import ROOT, table

FOLDER = ROOT / "deploy" / "prometheus"
RULES = (FOLDER / "noonday.rules.yml").read_text()
EXPRESSIONS = re.sub(r"^ *(#|summary:|description:).*$", "", RULES, flags=re.M)
_SAMPLE = re.compile(r"\b(noonday_\w+)(?:\{([^}]*)\})?")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "noonday.rules.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "noonday.rules.test.yml", "noonday.rules.days.test.yml"],
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(words: list[str]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool: scripts/servers install")
    ran = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS" in ran.stdout


def test_every_metric_and_label_is_one_that_we_have() -> None:
    known = dict(_samples())
    asked = list(_SAMPLE.finditer(EXPRESSIONS))
    assert len(asked) > 20
    for metric, labels in (found.groups() for found in asked):
        assert metric in known
        assert set(re.findall(r"(\w+)[=!]", labels or "")) <= known[metric], metric


def _samples() -> Iterator[tuple[str, set[str]]]:
    """Each sample that is scraped, with its possible labels."""
    metrics = Metrics()
    for made in [*vars(metrics).values(), *metrics.runs.collect()]:
        base = getattr(made, "_name", getattr(made, "name", ""))
        for name in (f"{base}{end}" for end in ("", "_total", "_bucket", "_count", "_sum")):
            yield name, {*getattr(made, "_labelnames", ()), *(["le"] if name.endswith("_bucket") else [])}


def test_every_bucket_that_is_asked_for_exists() -> None:
    metrics = Metrics()
    metrics.runs.count_start("default", late_sec=0.1, ran_sec=0.1)
    wanted = re.findall(r'le="([\d.]+)"', EXPRESSIONS)
    assert wanted == ["1.0", "5.0"]
    assert all(
        f'noonday_dispatch_lateness_seconds_bucket{{le="{bound}"}}'.encode() in metrics.text() for bound in wanted
    )


def test_every_state_and_outcome_that_is_asked_for_exists() -> None:
    assert set(re.findall(r'state="(\w+)"', EXPRESSIONS)) <= {state.name for state in State}
    outcomes = {name for names in re.findall(r'outcome=~"([\w|]+)"', EXPRESSIONS) for name in names.split("|")}
    assert outcomes == {DecisionOutcome.MISSED, DecisionOutcome.ERROR}


def test_the_page_lists_every_alert_with_its_severity() -> None:
    alerts = re.findall(r"alert: (\w+)\n(?:.*\n)*?.*severity: (\w+)", RULES)
    assert {(name, severity) for name, severity, _ in table("howto/run-a-cluster.md", "alert")} == set(alerts)


def test_the_page_lists_every_promise() -> None:
    budgets = set(re.findall(r"noonday:slo_budget\n.*\n +labels: \{ slo: ([\w-]+) \}", RULES))
    assert {slo.strip("`") for slo, _ in table("howto/run-a-cluster.md", "slo")} == budgets


def test_the_example_scrapes_each_process_of_make_cluster_under_its_role() -> None:
    lines = (FOLDER / "prometheus.yml").read_text()
    groups = re.findall(r"targets: \[(.*)\]\n +labels: \{ role: (\w+) \}", lines)
    scraped = {int(port): role for targets, role in groups for port in re.findall(r":(\d+)", targets)}
    assert scraped == {DEFAULT_PORT + index: name.partition("-")[0] for index, name in enumerate(ROLES)}
