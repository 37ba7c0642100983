"""Metrics of ended runs. A worker counts every run, so counting costs two list increments and no lock."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_LATENESS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
_DURATION_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0)


class _Distribution:
    """Number and sum of values, by bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def export(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        names = [*map(str, self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(names, accumulate(self._counts), strict=True)), self._sum)


class RunMetrics(Collector):
    """Lateness, duration and outcome of the runs of a process. One thread counts; a scrape may read between two runs."""

    def __init__(self) -> None:
        self._lateness = _Distribution(_LATENESS_BUCKETS)
        self._duration_by_pool: dict[str, _Distribution] = {}
        self._attempts: dict[str, int] = {}

    def count_start(self, pool: str, late_sec: float, ran_sec: float) -> None:
        """Count a run that had entered its handler, after it ended."""
        self._lateness.add(late_sec)
        duration = self._duration_by_pool.get(pool)
        if duration is None:
            duration = self._duration_by_pool[pool] = _Distribution(_DURATION_BUCKETS)
        duration.add(ran_sec)

    def count_end(self, outcome: str) -> None:
        """Count an attempt that ended, whether it had entered its handler or not."""
        self._attempts[outcome] = self._attempts.get(outcome, 0) + 1

    def collect(self) -> Iterator[Metric]:
        lateness = HistogramMetricFamily(
            "noonday_dispatch_lateness_seconds", "Time from the due instant to the start of the handler."
        )
        self._lateness.export(lateness, [])
        yield lateness
        duration = HistogramMetricFamily("noonday_run_duration_seconds", "Run time of handlers.", labels=["pool"])
        for pool, distribution in list(self._duration_by_pool.items()):
            distribution.export(duration, [pool])
        yield duration
        attempts = CounterMetricFamily("noonday_attempts", "Attempts ended, by outcome.", labels=["outcome"])
        for outcome, count in list(self._attempts.items()):
            attempts.add_metric([outcome], count)
        yield attempts
