"""Noonday: a job scheduler that fires work on time, once, and can always say what it did and why.

What is named here is imported when it is first used, so that a command or a spawned handler does not wait for all of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noonday.model.errors import DoNotRetry, ExecutionFailed, NoondayError
    from noonday.model.job import CatchUp, CatchUpPolicy, Concurrency, Dst, JobSpec, JobType, Overlap, Priority, Target
    from noonday.model.retry import Backoff, RetryPolicy
    from noonday.sdk.enqueued import EnqueuedJob
    from noonday.wiring.application import Noonday
    from noonday.worker.context import Context, FailedAttempt, RetryLater, Snooze

__all__ = [
    "Backoff",
    "CatchUp",
    "CatchUpPolicy",
    "Concurrency",
    "Context",
    "DoNotRetry",
    "Dst",
    "EnqueuedJob",
    "ExecutionFailed",
    "FailedAttempt",
    "JobSpec",
    "JobType",
    "Noonday",
    "NoondayError",
    "Overlap",
    "Priority",
    "RetryLater",
    "RetryPolicy",
    "Snooze",
    "Target",
]
__version__ = "0.1.0"

_HOMES = {
    "noonday.model.errors": ("DoNotRetry", "ExecutionFailed", "NoondayError"),
    "noonday.model.job": (
        "CatchUp",
        "CatchUpPolicy",
        "Concurrency",
        "Dst",
        "JobSpec",
        "JobType",
        "Overlap",
        "Priority",
        "Target",
    ),
    "noonday.model.retry": ("Backoff", "RetryPolicy"),
    "noonday.sdk.enqueued": ("EnqueuedJob",),
    "noonday.wiring.application": ("Noonday",),
    "noonday.worker.context": ("Context", "FailedAttempt", "RetryLater", "Snooze"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            if home.startswith("noonday.wiring"):
                from noonday.extras import Extra, require

                require(Extra.SERVER, f"noonday.{name}")
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'noonday' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
