"""Metrics of Noonday. Each engine has its own registry, so that one process can contain several engines."""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from noonday.model.execution import FINAL
from noonday.model.usage import Usage
from noonday.runtime.run_metrics import RunMetrics

OTHERS = "(others)"
"""Label of all tenants beyond `max_tenants`."""


class Metrics:
    """Counters, gauges and histograms of one engine, with their Prometheus registry."""

    def __init__(self, max_tenants: int = 0) -> None:
        """`max_tenants` is the number of tenants with their own label, the first ones seen. 0 disables counts per tenant."""
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)

        # Jobs and executions
        self.created = counter("noonday_jobs_created_total", "Jobs created, by the API that created them.", ["api"])
        self.due = counter("noonday_due_total", "Timeline entries that came due and were claimed.")
        self.decisions = counter("noonday_decisions_total", "Occurrences decided, by outcome.", ["outcome"])
        self.refused = counter("noonday_refused_total", "Stale or unreadable writes refused, by kind.", ["kind"])
        self.executions = counter("noonday_executions_total", "Executions ended, by final state.", ["state"])
        self.queued = gauge(
            "noonday_queued_executions", "Executions dispatched and not yet taken by a worker.", ["pool"]
        )
        self.due_now = gauge("noonday_due_entries", "Due entries still on the timeline.", ["pool"])
        self.oldest_due_age = gauge("noonday_oldest_due_age_seconds", "Age of the oldest due entry on the timeline.")
        self.dead_letters = gauge("noonday_dead_letters", "Dead letters that wait for a decision.")

        # Workers
        self.running = gauge("noonday_running_executions", "Handlers running now.")
        self.workers = gauge("noonday_workers", "Live workers.")
        self.pool_workers = gauge("noonday_pool_workers", "Live workers that serve a pool.", ["pool"])
        self.slots = gauge("noonday_worker_slots", "Handlers that this worker may run at once.", ["pool"])
        self.busy_slots = gauge("noonday_busy_slots", "Handlers that this worker runs now.", ["pool"])
        self.abandoned = counter(
            "noonday_runs_abandoned_total", "Runs reported as ended although their handler ignored the request to end."
        )
        self.abandoned_now = gauge("noonday_abandoned_runs", "Abandoned runs that still run in this worker.")
        self.workers_lost = counter("noonday_workers_lost_total", "Workers judged lost.")
        self.breakers_open = gauge(
            "noonday_breakers_open", "Open breakers of endpoints and handlers, as far as this worker knows."
        )

        # Scheduler
        self.batch_size = Histogram(
            "noonday_fire_batch_entries",
            "Entries fired in one transaction.",
            buckets=(1, 2, 5, 10, 50, 100, 500, 1000, 2000, 5000),
            registry=self.registry,
        )
        self.pool_credit = gauge(
            "noonday_pool_credit", "Dispatches that a pool may still be given until its topic is deep enough.", ["pool"]
        )
        self.in_flight_entries = gauge("noonday_in_flight_entries", "Entries claimed and not yet fired.")
        self.index_entries = gauge("noonday_index_entries", "Entries of the hot index in this process.")
        self.index_entries_limit = gauge(
            "noonday_index_entries_limit", "Maximum number of hot index entries and blocked entries in this process."
        )
        self.blocked_entries = gauge(
            "noonday_blocked_entries", "Entries blocked because their concurrency or ordering key has no free slot."
        )
        self.deferred_entries = gauge(
            "noonday_deferred_entries",
            "Due entries that cannot be fired for a reason of their own, and are tried again later.",
        )
        self.deferrals = counter("noonday_deferrals_total", "Deferrals of entries that could not be fired.")

        # Processes, the API and tenants
        self.tick_age = gauge("noonday_tick_age_seconds", "Time since a loop completed its last round.", ["loop"])
        self.clock_offset = gauge(
            "noonday_clock_offset_seconds", "Time by which the clock of this process is ahead of the reference clock."
        )
        self.answers = counter("noonday_api_answers_total", "API responses, by status class.", ["class"])
        self.tenant_runs = counter(
            "noonday_tenant_runs_total", "Runs of a tenant that ended, by outcome.", ["tenant", "outcome"]
        )
        self.tenant_run_seconds = counter(
            "noonday_tenant_run_seconds_total", "Run time of a tenant's runs.", ["tenant"]
        )
        self.runs = RunMetrics()
        self.registry.register(self.runs)

        # Counters that alerts use begin at 0: a series that appears with its first value has no rate.
        for api in ("jobs", "tasks"):
            self.created.labels(api)
        for state in sorted(FINAL):
            self.executions.labels(state.name)
        self._max_tenants = max_tenants
        self._named_tenants: set[str] = set()
        self._answers_by_class = [self.answers.labels(f"{first}xx") for first in range(1, 6)]

    def count_answer(self, status: int) -> None:
        """Count an API response. Called for every request, so the labels are looked up beforehand."""
        self._answers_by_class[status // 100 - 1].inc()

    def count_usage(self, usage: Usage) -> None:
        """Count runs and run time per tenant, if `max_tenants` allows it."""
        if not self._max_tenants:
            return
        for (tenant, _), used in usage.items():
            label = self._label_of(tenant)
            others = used.runs - used.succeeded - used.failed
            for outcome, count in (("SUCCEEDED", used.succeeded), ("FAILED", used.failed), ("OTHER", others)):
                if count:
                    self.tenant_runs.labels(label, outcome).inc(count)
            self.tenant_run_seconds.labels(label).inc(used.run_ms / 1000)

    def _label_of(self, tenant: str) -> str:
        if tenant not in self._named_tenants:
            if len(self._named_tenants) >= self._max_tenants:
                return OTHERS
            self._named_tenants.add(tenant)
        return tenant

    def count_created(self, jobs: int, tasks: int) -> None:
        self.created.labels("jobs").inc(jobs)
        self.created.labels("tasks").inc(tasks)

    def watch_slots(self, pool: str, slots: int, busy: Callable[[], float]) -> None:
        """Export a worker's slots in a pool. `busy` is called at each scrape."""
        self.slots.labels(pool).set(slots)
        self.busy_slots.labels(pool).set_function(busy)

    def watch_credit(self, pool: str, credit: Callable[[], float]) -> None:
        """Export the credit of a pool. `credit` is called at each scrape."""
        self.pool_credit.labels(pool).set_function(credit)

    def watch_tick(self, loop: str, age_sec: Callable[[], float]) -> None:
        """Export the age of a loop's last round. `age_sec` is called at each scrape, so that it also shows a stalled loop."""
        self.tick_age.labels(loop).set_function(age_sec)

    def text(self) -> bytes:
        return generate_latest(self.registry)
