"""Metrics of ended runs, as a scrape shows them."""

from noonday.runtime.metrics import Metrics


def test_lateness_is_counted_in_every_bucket_it_is_below() -> None:
    metrics = Metrics()
    metrics.runs.count_start("default", late_sec=0.02, ran_sec=0.5)
    metrics.runs.count_start("default", late_sec=4000, ran_sec=0.5)
    text = metrics.text().decode()
    assert 'noonday_dispatch_lateness_seconds_bucket{le="0.01"} 0.0' in text
    assert 'noonday_dispatch_lateness_seconds_bucket{le="0.025"} 1.0' in text
    assert 'noonday_dispatch_lateness_seconds_bucket{le="3600.0"} 1.0' in text
    assert 'noonday_dispatch_lateness_seconds_bucket{le="+Inf"} 2.0' in text
    assert "noonday_dispatch_lateness_seconds_count 2.0" in text
    assert "noonday_dispatch_lateness_seconds_sum 4000.02" in text


def test_a_value_on_a_bound_counts_below_it() -> None:
    metrics = Metrics()
    metrics.runs.count_start("default", late_sec=1.0, ran_sec=0)
    assert 'noonday_dispatch_lateness_seconds_bucket{le="1.0"} 1.0' in metrics.text().decode()


def test_durations_are_counted_by_pool() -> None:
    metrics = Metrics()
    metrics.runs.count_start("etl", late_sec=0, ran_sec=2)
    metrics.runs.count_start("mail", late_sec=0, ran_sec=20)
    text = metrics.text().decode()
    assert 'noonday_run_duration_seconds_bucket{le="5.0",pool="etl"} 1.0' in text
    assert 'noonday_run_duration_seconds_bucket{le="5.0",pool="mail"} 0.0' in text


def test_attempts_are_counted_by_outcome() -> None:
    metrics = Metrics()
    for outcome in ("SUCCEEDED", "SUCCEEDED", "FAILED"):
        metrics.runs.count_end(outcome)
    text = metrics.text().decode()
    assert 'noonday_attempts_total{outcome="SUCCEEDED"} 2.0' in text
    assert 'noonday_attempts_total{outcome="FAILED"} 1.0' in text
