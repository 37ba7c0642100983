"""Descriptions of jobs and their schedules, for people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from noonday.cli.instants import brief, length, whole
from noonday.cli.screen import cell_text, compact, state
from noonday.model.job import CatchUp, Concurrency, Dst, JobType
from noonday.model.retry import Backoff, RetryPolicy
from noonday.model.view import ExecutionView, JobView, MoveView

MOVES_SHOWN = 5
"""Maximum number of moved occurrences that are listed."""


def how_to_see_the_error(executions: Sequence[ExecutionView]) -> str | None:
    """Return the commands that show the traceback and the log of the latest of these executions that failed, if any did."""
    one = next((each.execution_id for each in executions if each.error is not None), None)
    if one is None:
        return None
    return f"To see the last error: noonday execution show {one} --traceback; and the log: noonday execution logs {one}"


def took(started: datetime | None, finished: datetime | None) -> str:
    return length((finished - started).total_seconds()) if started and finished else "-"


def schedule_of(one: JobView) -> str:
    """Describe when a job runs: `0 3 * * * in UTC`, `every 5 min`, `once`."""
    if one.type is JobType.CRON:
        return f"{one.schedule} in {one.timezone or 'UTC'}"
    if one.type is JobType.INTERVAL:
        return f"every {length(one.every_sec or 0)}"
    return "once"


def facts_of(one: JobView) -> list[tuple[str, Any]]:
    return [
        ("job", one.job_id),
        ("name", cell_text(one.name) if one.name else None),
        ("state", state(one.state)),
        ("paused until", whole(one.paused_until, one.timezone) if one.paused_until else None),
        ("runs", schedule_of(one)),
        ("next", _next(one)),
        ("moved", _moves(one)),
        ("target", f"{one.target.handler} in pool {one.target.pool}"),
        ("payload", compact(one.payload) if one.payload is not None else None),
        ("overlap", one.overlap.value),
        ("retries", _retries(one.retry_policy) if one.retry_policy else None),
        ("timeout", length(one.timeout_sec) if one.timeout_sec else None),
        ("priority", one.priority.value),
        ("tags", ", ".join(one.tags) or None),
        ("unique key", one.unique_key),
        ("runs left", str(one.runs_left) if one.runs_left is not None else None),
        *_non_default_settings(one),
        ("created", whole(one.created_at)),
        ("updated", whole(one.updated_at) if one.version > 1 else None),
        ("version", str(one.version)),
    ]


def _non_default_settings(one: JobView) -> list[tuple[str, Any]]:
    """Return the settings that most jobs leave at their defaults."""
    return [
        ("from", whole(one.start_at) if one.start_at else None),
        ("until", whole(one.end_at) if one.end_at else None),
        ("catch-up", compact(one.catch_up) if one.catch_up != CatchUp() else None),
        ("dst", compact(one.dst) if one.dst != Dst() else None),
        ("start deadline", length(one.start_deadline_sec) if one.start_deadline_sec else None),
        ("spread", length(one.spread_sec) if one.spread_sec else None),
        ("concurrency", _concurrency(one.concurrency) if one.concurrency else None),
        ("heartbeat", f"every {length(one.heartbeat_timeout_sec)}" if one.heartbeat_timeout_sec else None),
    ]


def _concurrency(policy: Concurrency) -> str:
    return f"one at a time with key {policy.key}" if policy.ordered else f"at most {policy.limit} with key {policy.key}"


def _next(one: JobView) -> str | None:
    if one.next_fire_at is None:
        return None
    return whole(one.next_fire_at, one.timezone)


def _moves(one: JobView) -> str | None:
    """Describe the first moves of a job, one a line."""
    lines = [_move(one, each) for each in one.moves[:MOVES_SHOWN]]
    if more := len(one.moves) - len(lines):
        lines.append(f"and {more} more, which --json shows")
    return "\n".join(lines) or None


def _move(one: JobView, move: MoveView) -> str:
    because = f": {cell_text(move.reason)}" if move.reason else ""
    return f"{brief(move.at, one.timezone)} to {brief(move.to, one.timezone)}, by {cell_text(move.by)}{because}"


def _retries(policy: RetryPolicy) -> str:
    if policy.backoff is Backoff.LIST:
        waits = ", ".join(length(ms / 1000) for ms in policy.delays_ms)
    elif policy.backoff is Backoff.FIXED:
        waits = f"{length(policy.initial_delay_ms / 1000)} each"
    else:
        first, most = length(policy.initial_delay_ms / 1000), length(policy.max_delay_ms / 1000)
        waits = f"{first}, multiplied by {policy.multiplier:g} each time, at most {most}"
    return f"{policy.max_attempts} attempts; delays up to {waits}"
