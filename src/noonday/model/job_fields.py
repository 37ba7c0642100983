"""Keyword arguments by which applications and handlers describe jobs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from noonday.model.job import CatchUp, Concurrency, Dst, Overlap, Priority
from noonday.model.retry import RetryPolicy

Duration = float | timedelta
"""A duration: seconds or a timedelta."""


class DeclaredFields(TypedDict, total=False):
    """Optional fields of a job declared in code, as in `JobSpec`."""

    dst: Dst
    phase_sec: Duration
    start_at: datetime
    end_at: datetime
    max_runs: int
    overlap: Overlap | str
    catch_up: CatchUp
    start_deadline_sec: Duration
    spread_sec: Duration
    concurrency: Concurrency
    priority: Priority
    heartbeat_timeout_sec: Duration
    tags: tuple[str, ...]


class JobFields(DeclaredFields, total=False):
    """Optional fields of an enqueued job: those of a declared job, plus unique key, retry policy and timeout."""

    unique_key: str
    retry: RetryPolicy | Mapping[str, Any] | None
    timeout: Duration | None


class EnqueueFields(JobFields, total=False):
    """The keyword arguments of `enqueue`: when the job runs, where, and its optional fields.

    A job runs now, `at` a time, after a `delay`, on a `cron`, or `every` interval.
    """

    at: datetime | None
    delay: Duration | None
    cron: str | None
    every: Duration | None
    timezone: str | None
    pool: str | None
    name: str | None
