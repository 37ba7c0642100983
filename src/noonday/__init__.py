"""Noonday: a job scheduler that fires work on time, once, and can always say what it did and why."""

from noonday.model.errors import DoNotRetry, ExecutionFailed, NoondayError
from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, Dst, JobSpec, JobType, Overlap, Priority, Target
from noonday.model.retry import Backoff, RetryPolicy
from noonday.wiring.application import Noonday
from noonday.worker.context import Context, Snooze

__all__ = [
    "Backoff",
    "CatchUp",
    "CatchUpPolicy",
    "Concurrency",
    "Context",
    "DoNotRetry",
    "Dst",
    "ExecutionFailed",
    "JobSpec",
    "JobType",
    "Noonday",
    "NoondayError",
    "Overlap",
    "Priority",
    "RetryPolicy",
    "Snooze",
    "Target",
]
__version__ = "0.1.0"
