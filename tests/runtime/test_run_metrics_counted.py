"""Counting of runs, without the metrics of the process around it."""

from noonday.runtime.run_metrics import RunMetrics


def samples(metrics: RunMetrics) -> dict[tuple[str, str], float]:
    """Return the counters by name and first label."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_run_that_entered_its_handler_counts_its_lateness_and_its_duration() -> None:
    metrics = RunMetrics()
    metrics.count_start("etl", late_sec=0.5, ran_sec=2)
    metrics.count_start("etl", late_sec=1.5, ran_sec=3)
    counted = samples(metrics)
    assert counted["noonday_dispatch_lateness_seconds_count", ""] == 2
    assert counted["noonday_dispatch_lateness_seconds_sum", ""] == 2
    assert counted["noonday_run_duration_seconds_sum", "etl"] == 5


def test_attempt_that_did_not_enter_its_handler_counts_its_outcome_alone() -> None:
    metrics = RunMetrics()
    metrics.count_end("EXPIRED")
    counted = samples(metrics)
    assert counted["noonday_attempts_total", "EXPIRED"] == 1
    assert counted["noonday_dispatch_lateness_seconds_count", ""] == 0


def test_process_that_has_run_nothing_still_has_its_metrics() -> None:
    assert {family.name for family in RunMetrics().collect()} == {
        "noonday_dispatch_lateness_seconds",
        "noonday_run_duration_seconds",
        "noonday_attempts",
    }
