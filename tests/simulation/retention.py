"""Retention: no row that is open, dispatched or still to be kept is pruned, and no other row is kept for long."""

import sqlite3
from collections.abc import Iterator, Mapping

from noonday.model.execution import State
from noonday.model.job import JobState
from noonday.wiring.settings.engine import RetentionSettings
from tests.simulation.history import History

DAY_MS = 86_400_000
ROUND_MS = 10_000
"""Pruning takes place every five seconds. Twice as long after its time, every row is gone."""


def seconds(seconds: float) -> int:
    """Convert seconds into days. Settings of users are whole days, which no simulated run lasts."""
    return seconds / 86_400  # type: ignore[return-value]


SHORT = RetentionSettings(
    succeeded_days=seconds(4),
    cancelled_days=seconds(2),
    expired_days=seconds(1),
    dead_days=seconds(12),
    jobs_days=seconds(6),
    decisions_days=seconds(8),
    audit_days=seconds(5),
)


def check_retention(
    conn: sqlite3.Connection, history: History, retention: RetentionSettings, now_ms: int, quiet_since_ms: int
) -> Iterator[str]:
    """Check the retention of all rows. `quiet_since_ms`: since when no fault delays pruning."""
    keeps = _keeps_ms(retention, history.skew_ms)
    own = {answer.value: answer.at_ms for answer in history.answered("keep")}
    query = "SELECT id, tenant, state, finished_ms, pruned_ms FROM pruned_executions"
    for id_, tenant, state, finished_ms, pruned_ms in conn.execute(query):
        if State(state) not in keeps or finished_ms is None:
            yield f"retention: execution {id_} was pruned at {pruned_ms} while it was {State(state).name}"
        elif pruned_ms < finished_ms + keeps[State(state)]:
            yield f"retention: execution {id_} ended at {finished_ms} and was pruned at {pruned_ms}"
        elif pruned_ms > own.get(tenant, pruned_ms) + ROUND_MS:
            yield f"retention: execution {id_} was pruned at {pruned_ms}, and {tenant!r} keeps its own for a day"
    yield from _jobs(conn, retention, history.skew_ms)
    query = "SELECT job_id, from_ms, decided_ms, pruned_ms FROM pruned_decisions"
    for job, from_ms, decided_ms, pruned_ms in conn.execute(query):
        if pruned_ms < decided_ms + retention.decisions_days * DAY_MS - 2 * history.skew_ms:
            yield f"retention: the decision on {from_ms} of job {job} was made at {decided_ms} and pruned at {pruned_ms}"
    if history.asked("keep"):  # also without an answer
        return  # a walk that skips the executions of a tenant comes back to the others after an hour
    for id_, state, finished_ms in conn.execute("SELECT id, state, finished_ms FROM executions WHERE state > 4"):
        due_ms = max(finished_ms + keeps[State(state)] + 4 * history.skew_ms, quiet_since_ms) + ROUND_MS
        if due_ms < now_ms:
            yield f"retention: execution {id_} ({State(state).name}) ended at {finished_ms} and is still there"


def _jobs(conn: sqlite3.Connection, retention: RetentionSettings, skew_ms: int) -> Iterator[str]:
    """Check jobs: a job is pruned when it has no future times, and after its last execution."""
    last_ms = dict(conn.execute("SELECT job_id, max(pruned_ms) FROM pruned_executions GROUP BY job_id").fetchall())
    left = {job for (job,) in conn.execute("SELECT job_id FROM executions UNION SELECT key FROM timeline")}
    query = "SELECT id, state, updated_ms, pruned_ms FROM pruned_jobs"
    for id_, state, updated_ms, pruned_ms in conn.execute(query):
        if state == JobState.PAUSED or id_ in left or last_ms.get(id_, 0) > pruned_ms:
            yield f"retention: job {id_} ({JobState(state).name}) was pruned at {pruned_ms} before all of it was over"
        elif pruned_ms < updated_ms + retention.jobs_days * DAY_MS - 2 * skew_ms:
            yield f"retention: job {id_} changed at {updated_ms} and was pruned at {pruned_ms}"


def _keeps_ms(retention: RetentionSettings, skew_ms: int) -> Mapping[State, float]:
    """Return the shortest time for which each state is kept. The clocks that note the end and that prune may differ."""
    days = {
        State.SUCCEEDED: retention.succeeded_days,
        State.CANCELLED: retention.cancelled_days,
        State.EXPIRED: retention.expired_days,
        State.DEAD: retention.dead_days,
    }
    return {state: max(0, kept * DAY_MS - 2 * skew_ms) for state, kept in days.items()}
