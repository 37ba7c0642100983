"""Settings of the stages: store, scheduler, workers and retention."""

from typing import Annotated, Literal

from msgspec import Meta

from noonday.model.budget import INDEX_ENTRIES
from noonday.wiring.settings.section import Section


class StoreSettings(Section, frozen=True, kw_only=True):
    """The SQLite file."""

    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        Meta(
            description="Durability when the power fails: FULL loses nothing; NORMAL is faster and may lose the latest commits."
        ),
    ] = "FULL"
    cache_mb: Annotated[int, Meta(ge=1, le=65_536, description="Page cache, in MiB.")] = 64
    busy_timeout_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="Time that a statement waits for a lock on the file, in milliseconds. 0 does not wait.",
        ),
    ] = 5000


class SchedulerSettings(Section, frozen=True, kw_only=True):
    """Search and fire of due jobs."""

    lead_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="Milliseconds before its time that a job is dispatched; the worker waits for the exact time. "
            "0 disables early dispatch.",
        ),
    ] = 200
    batch: Annotated[
        int, Meta(ge=1, le=100_000, description="Maximum number of entries that one transaction fires.")
    ] = 2000
    hydrate_ahead_sec: Annotated[
        int,
        Meta(ge=1, le=86_400, description="Seconds ahead of time that the hydrator loads entries into the hot index."),
    ] = 600
    hint_ahead_sec: Annotated[
        int,
        Meta(
            ge=1,
            le=172_800,
            description="A new entry due within this many seconds enters the hot index at once. "
            "Must be more than hydrate_ahead_sec.",
        ),
    ] = 1200
    index_entries: Annotated[
        int,
        Meta(
            ge=1_000,
            le=100_000_000,
            description="Maximum number of hot index entries in the memory of one process, about 600 bytes each. Further entries "
            "stay in the store until there is room.",
        ),
    ] = INDEX_ENTRIES
    sweep_every_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=3_600_000,
            description="Interval of the sweeper, which restores overdue entries that the hot index lost, in milliseconds.",
        ),
    ] = 1000
    grace_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=3_600_000,
            description="Milliseconds that an entry must be overdue before the sweeper restores it. 0 restores it at once.",
        ),
    ] = 2000


class WorkerSettings(Section, frozen=True, kw_only=True):
    """Execution of handlers by workers."""

    concurrency: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum number of handlers that run at the same time in one pool of a process.",
        ),
    ] = 100
    threads: Annotated[int, Meta(ge=1, le=10_000, description="Number of threads for handlers that are not async.")] = (
        32
    )
    processes: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000,
            description="Maximum number of processes for handlers with `process=True`. 0 allows no such handlers.",
        ),
    ] = 2
    drain_sec: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds that running handlers have to finish when the process is stopped. The sum of drain_sec, "
            "cancel_grace_sec and 2 s must be less than the time after which the supervisor kills (Kubernetes: 30 s). "
            "0 does not wait.",
        ),
    ] = 20
    beat_sec: Annotated[int, Meta(ge=1, le=3_600, description="Interval of worker heartbeats, in seconds.")] = 10
    cancel_grace_sec: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds that a cancelled handler has to stop; 0 does not wait. After that, a process is killed, and a "
            "thread or coroutine that continues is abandoned.",
        ),
    ] = 5
    max_abandoned: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Number of abandoned runs at which the worker reports that it is not ready, and `noonday worker` starts "
            "a successor process. Until then, new runs replace abandoned ones.",
        ),
    ] = 8
    retry_breaker_min_runs_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Minimum runs per minute of a handler before its retry breaker may open (it opens when over half of the "
            "runs fail). 0 disables it.",
        ),
    ] = 100
    hook_timeout_sec: Annotated[
        int,
        Meta(
            ge=1, le=3_600, description="Seconds that each function of `@app.on_failure` and `@app.on_dead` has to end."
        ),
    ] = 10
    failure_log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        Meta(description="Level at which failed attempts are logged, on the standard logger `noonday.handler.<name>`."),
    ] = "ERROR"
    handler_log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        Meta(
            description="Lowest level of the log lines of handlers that are kept with their execution, and that `noonday up` and "
            "`noonday worker` show unless the application configures logging itself."
        ),
    ] = "INFO"


class RemoteSettings(Section, frozen=True, kw_only=True):
    """Remote workers, which take executions over the API."""

    lease_sec: Annotated[
        int,
        Meta(
            ge=2,
            le=3_600,
            description="Seconds after which a remote worker that sends no heartbeat counts as lost. It must also start what it "
            "takes within this time.",
        ),
    ] = 30
    concurrency: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum number of executions of a pool that remote workers have of a process.",
        ),
    ] = 1_000
    pools: Annotated[
        str,
        Meta(
            min_length=1,
            description="Pools that remote workers may serve: names or patterns such as `go-*`, separated by commas. Built-in "
            "pools are never among them.",
        ),
    ] = "*"

    @property
    def allowed_pools(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.pools.split(",") if name.strip())


class RetentionSettings(Section, frozen=True, kw_only=True):
    """Days that the store keeps records. 0 deletes them at the next pruning."""

    succeeded_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep executions that succeeded.")] = 7
    cancelled_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep executions that were cancelled.")
    ] = 7
    expired_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep executions that expired before they started.")
    ] = 7
    dead_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep dead letters.")] = 30
    jobs_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep jobs that will not fire again.")] = 30
    decisions_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep decisions, the reasons why occurrences did not fire.")
    ] = 30
    audit_days: Annotated[int, Meta(ge=0, le=36_500, description="Days to keep the audit log.")] = 90
    alerts_days: Annotated[
        int, Meta(ge=0, le=36_500, description="Days to keep an alert after its last occurrence.")
    ] = 90
