"""Metrics of Noonday. Each engine has its own registry, so that one process can contain several engines."""

from collections.abc import Callable

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
        self.registry = registry = CollectorRegistry()
        self.created = Counter(
            "noonday_jobs_created_total", "Jobs created, by the API that created them.", ["door"], registry=registry
        )
        self.due = Counter("noonday_due_total", "Timeline entries that came due and were claimed.", registry=registry)
        self.decisions = Counter(
            "noonday_decisions_total", "Occurrences decided, by outcome.", ["outcome"], registry=registry
        )
        self.refused = Counter(
            "noonday_refused_total", "Stale or unreadable writes refused, by kind.", ["what"], registry=registry
        )
        self.runs = RunMetrics()
        registry.register(self.runs)
        self.executions = Counter(
            "noonday_executions_total", "Executions ended, by final state.", ["state"], registry=registry
        )
        self.queued = Gauge(
            "noonday_queued_executions",
            "Executions dispatched and not yet taken by a worker.",
            ["pool"],
            registry=registry,
        )
        self.due_now = Gauge("noonday_due_entries", "Due entries still on the timeline.", ["pool"], registry=registry)
        self.oldest_due_age = Gauge(
            "noonday_oldest_due_age_seconds", "Age of the oldest due entry on the timeline.", registry=registry
        )
        self.dead_letters = Gauge("noonday_dead_letters", "Dead letters that wait for a decision.", registry=registry)
        self.running = Gauge("noonday_running_executions", "Handlers running now.", registry=registry)
        self.workers = Gauge("noonday_workers", "Live workers.", registry=registry)
        self.pool_workers = Gauge(
            "noonday_pool_workers", "Live workers that serve a pool.", ["pool"], registry=registry
        )
        self.slots = Gauge(
            "noonday_worker_slots", "Handlers that this worker may run at once.", ["pool"], registry=registry
        )
        self.busy_slots = Gauge(
            "noonday_busy_slots", "Handlers that this worker runs now.", ["pool"], registry=registry
        )
        self.abandoned = Counter(
            "noonday_runs_abandoned_total",
            "Runs reported as ended although their handler ignored the request to end.",
            registry=registry,
        )
        self.abandoned_now = Gauge(
            "noonday_abandoned_runs", "Abandoned runs that still run in this worker.", registry=registry
        )
        self.workers_lost = Counter("noonday_workers_lost_total", "Workers judged lost.", registry=registry)
        self.breakers_open = Gauge(
            "noonday_breakers_open",
            "Open breakers of endpoints and handlers, as far as this worker knows.",
            registry=registry,
        )
        self.tick_age = Gauge(
            "noonday_tick_age_seconds", "Time since a loop completed its last round.", ["loop"], registry=registry
        )
        self.batch_size = Histogram(
            "noonday_fire_batch_entries",
            "Entries fired in one transaction.",
            buckets=(1, 2, 5, 10, 50, 100, 500, 1000, 2000, 5000),
            registry=registry,
        )
        self.in_flight_entries = Gauge(
            "noonday_in_flight_entries", "Entries claimed and not yet fired.", registry=registry
        )
        self.index_entries = Gauge(
            "noonday_index_entries", "Entries of the hot index in this process.", registry=registry
        )
        self.index_entries_limit = Gauge(
            "noonday_index_entries_limit",
            "Maximum number of hot index entries and blocked entries in this process.",
            registry=registry,
        )
        self.blocked_entries = Gauge(
            "noonday_blocked_entries",
            "Entries blocked because their concurrency or ordering key has no free slot.",
            registry=registry,
        )
        self.deferred_entries = Gauge(
            "noonday_deferred_entries",
            "Due entries that cannot be fired for a reason of their own, and are tried again later.",
            registry=registry,
        )
        self.deferrals = Counter(
            "noonday_deferrals_total",
            "Deferrals of entries that could not be fired.",
            registry=registry,
        )
        self.clock_offset = Gauge(
            "noonday_clock_offset_seconds",
            "Time by which the clock of this process is ahead of the reference clock.",
            registry=registry,
        )

        self.answers = Counter(
            "noonday_api_answers_total", "API responses, by status class.", ["class"], registry=registry
        )
        self.tenant_runs = Counter(
            "noonday_tenant_runs_total",
            "Runs of a tenant that ended, by outcome.",
            ["tenant", "outcome"],
            registry=registry,
        )
        self.tenant_run_seconds = Counter(
            "noonday_tenant_run_seconds_total", "Run time of a tenant's runs.", ["tenant"], registry=registry
        )
        # Counters that alerts use begin at 0: a series that appears with its first value has no rate.
        for door in ("jobs", "tasks"):
            self.created.labels(door)
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

    def watch_tick(self, loop: str, age_sec: Callable[[], float]) -> None:
        """Export the age of a loop's last round. `age_sec` is called at each scrape, so that it also shows a stalled loop."""
        self.tick_age.labels(loop).set_function(age_sec)

    def text(self) -> bytes:
        return generate_latest(self.registry)
