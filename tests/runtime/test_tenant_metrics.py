"""Tenants are counted by name only if the setting is on, and only a limited number of them."""

import re

from noonday.model.usage import UsageTotals
from noonday.runtime.metrics import OTHERS, Metrics

SOME = UsageTotals(runs=6, succeeded=3, failed=2, run_ms=1500)


def tenants_in(metrics: Metrics) -> set[str]:
    return set(re.findall(r'tenant="([^"]*)"', metrics.text().decode()))


def test_without_the_switch_no_tenant_is_named() -> None:
    metrics = Metrics()
    metrics.count_usage({("acme", 1): SOME})
    assert tenants_in(metrics) == set()


def test_runs_are_counted_by_outcome_and_time() -> None:
    metrics = Metrics(max_tenants=1)
    metrics.count_usage({("acme", 1): SOME})
    metrics.count_usage({("acme", 2): SOME})
    value = metrics.registry.get_sample_value
    counts = [
        value("noonday_tenant_runs_total", {"tenant": "acme", "outcome": outcome})
        for outcome in ("SUCCEEDED", "FAILED", "OTHER")
    ]
    assert counts == [6, 4, 2]
    assert value("noonday_tenant_run_seconds_total", {"tenant": "acme"}) == 3


def test_tenants_beyond_the_most_share_one_label() -> None:
    metrics = Metrics(max_tenants=3)
    for number in range(50):
        metrics.count_usage({(f"t{number}", 1): SOME})
    metrics.count_usage({("t1", 1): SOME})
    assert tenants_in(metrics) == {"t0", "t1", "t2", OTHERS}
    value = metrics.registry.get_sample_value
    assert value("noonday_tenant_runs_total", {"tenant": OTHERS, "outcome": "SUCCEEDED"}) == 47 * 3
    assert value("noonday_tenant_runs_total", {"tenant": "t1", "outcome": "SUCCEEDED"}) == 2 * 3
