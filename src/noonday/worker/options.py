"""Options of a worker, and the capacities that follow from them."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from noonday.model.breaker import MIN_RUNS
from noonday.model.handler import Handler, Mode
from noonday.model.limits import LOG_BYTES, PROGRESS_BYTES


@dataclass(frozen=True)
class WorkerOptions:
    """Pools, capacities and deadlines of a worker."""

    concurrency: Mapping[str, int]
    """Maximum number of handlers that run at once, by pool."""
    threads: int = 32
    processes: int = 2
    beat_sec: float = 10.0
    drain_sec: float = 20.0
    cancel_grace_sec: float = 5.0
    max_abandoned: int = 8
    """Maximum number of abandoned runs whose slots are given to other runs."""
    result_limit: int = 65_536
    progress_limit: int = PROGRESS_BYTES
    shares: Mapping[str, float] = field(default_factory=dict)
    """Fraction of the slots left by other tenants that one tenant may take, by pool. A pool that is missing has no bound."""
    retry_breaker_min_runs_per_minute: int = MIN_RUNS
    """Minimum runs per minute before the retry breaker of a handler may open (it opens when over half fail). 0 disables it."""
    failure_log_level: int = logging.ERROR
    """Level at which failed attempts are logged."""
    log_limit: int = LOG_BYTES
    """Maximum size of the log lines that are kept of an attempt, in bytes. 0 keeps none."""
    log_level: int = logging.INFO
    """Lowest level of log lines that are kept."""
    hook_timeout_sec: float = 10.0
    """Seconds that a function of `on_failure` or `on_dead` has to end."""
    frozen_after_sec: float | None = None
    """If the control loop stalls for longer, a recorder may have marked this worker as lost: the worker stops its runs and
    continues under a new identity. None where the recorder is in the same process and stalls with it."""


def limit_of(mode: Mode, options: WorkerOptions) -> int | None:
    """Return how many runs of a mode the whole worker can have at once.

    None: there is no limit, or it is 0 processes, for which the host raises an error that names the setting.
    """
    return {
        Mode.ASYNC: None,
        Mode.THREAD: options.threads,
        Mode.PROCESS: options.processes or None,
        Mode.REMOTE: None,
    }[mode]


def runnable_concurrency(options: WorkerOptions, handlers: Mapping[tuple[str, str], Handler]) -> dict[str, int]:
    """Return how many handlers of each pool can run at once.

    That is the concurrency of the pool, or fewer if all its handlers need threads or processes and there are fewer of those.
    """
    runnable = {}
    for pool, concurrency in options.concurrency.items():
        modes = {handler.mode for (its_pool, _), handler in handlers.items() if its_pool == pool}
        limits = [limit_of(mode, options) for mode in modes]
        bounded = [limit for limit in limits if limit is not None]
        runnable[pool] = min(concurrency, sum(bounded)) if bounded and len(bounded) == len(limits) else concurrency
    return runnable
