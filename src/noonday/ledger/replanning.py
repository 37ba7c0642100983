"""What new time-zone data does to schedules that are still to come."""

from noonday.ledger.ledger import Ledger
from noonday.model.firing import fire_entry
from noonday.model.ids import ExecutionId, JobId, execution_id, partition_of
from noonday.model.job import Job, rule_of
from noonday.ports.jobs import Fire

LOOK_AHEAD = 50
"""How many of its next times a job may have fired ahead of their instant; staging is well below a second."""


def may_have_fired(job: Job, fire: Fire, now_ms: int) -> list[ExecutionId]:
    """Executions whose existence decides which time comes next."""
    if not _is_to_come(job, fire, now_ms):
        return []
    times = rule_of(job.spec, job.anchor_ms).take(now_ms, LOOK_AHEAD, fire.nominal_ms - 1)
    return [execution_id(JobId(job.id), time) for time in times]


def replan(ledger: Ledger, job: Job, fire: Fire, fired: set[str], now_ms: int) -> None:
    if not _is_to_come(job, fire, now_ms):
        return
    following = _first_not_in(fired, job, fire, now_ms)
    if following is not None and following != fire.nominal_ms:
        entry = fire_entry(job, following, partition_of(job.id))
        ledger.put(entry, entry.due_ms, fire.runs_left, job.spec.line)


def _is_to_come(job: Job, fire: Fire, now_ms: int) -> bool:
    return fire.due_ms is not None and not job.spec.one_shot and fire.nominal_ms > now_ms


def _first_not_in(fired: set[str], job: Job, fire: Fire, now_ms: int) -> int | None:
    rule = rule_of(job.spec, job.anchor_ms)
    time = rule.next_after(now_ms)
    for _ in range(LOOK_AHEAD):
        if time is None or time >= fire.nominal_ms or execution_id(job.id, time) not in fired:
            return time
        time = rule.next_after(time)
    return None
