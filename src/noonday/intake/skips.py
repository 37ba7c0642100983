"""Skips of occurrences: which occurrences of a job a person skips, and how a skip is undone before its time.

A skip is part of the job, and raises its revision. A fire that was planned before names the former revision, so the store
refuses it. Dispatches are not affected: an occurrence that has been dispatched is not skipped any more.
"""

from collections.abc import Iterable, Sequence

import msgspec

from noonday.intake.change_times import effective_ms, refuse_if_cancelled
from noonday.intake.edits import awaited_ms, gives_up_paused
from noonday.model.audit import AuditEntry
from noonday.model.change import Change
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.ids import execution_id
from noonday.model.job import Job, text_of
from noonday.model.left_out import moves_in_force, schedule_of
from noonday.model.skip import MOST_SKIPS, Skip
from noonday.model.snapshot import Snapshot


def skip(
    before: Snapshot, at_ms: int | None, count: int, by: str, reason: str | None, now_ms: int, audit: AuditEntry
) -> Change:
    """Skip the occurrence at an instant, or the next `count` ones that are not skipped.

    Raises InvalidInput for an instant that is no occurrence, and Conflict for one that is decided or for too many skips.
    """
    job = before.job
    refuse_if_cancelled(job)
    if job.spec.one_shot:
        raise Conflict(f"job {job.id} runs once: DELETE /v1/jobs/{job.id} cancels it")
    now_ms = effective_ms(job, now_ms)
    kept = _undecided(before)
    known = {each.nominal_ms for each in kept}
    from_ms = first_undecided(before, now_ms)
    if at_ms is None:
        chosen = _next_unskipped(job, from_ms, count, known.union(each.nominal_ms for each in moves_in_force(job)))
    else:
        require_occurrence(job, at_ms, from_ms)
        refuse_moved(job, at_ms)
        chosen = [at_ms]
    refuse_dispatched(before, chosen)
    new = [Skip(time, by, now_ms, reason) for time in chosen if time not in known]
    if not new:
        return Change()
    if len(kept) + len(new) > MOST_SKIPS:
        raise Conflict(
            f"job {job.id} would skip {len(kept) + len(new)} occurrences in advance; at most {MOST_SKIPS} are allowed: pause the "
            "job instead"
        )
    return _changed(before, (*kept, *new), now_ms, audit)


def undo(before: Snapshot, at_ms: int | None, now_ms: int, audit: AuditEntry) -> Change:
    """Undo the skip of an occurrence, or all skips. Raises Conflict if the occurrence is not skipped, or is decided."""
    job = before.job
    refuse_if_cancelled(job)
    kept = _undecided(before)
    if at_ms is None:
        return _changed(before, (), effective_ms(job, now_ms), audit) if kept else Change()
    left = tuple(each for each in kept if each.nominal_ms != at_ms)
    if len(left) == len(kept):
        is_past = any(each.nominal_ms == at_ms for each in job.skips)
        why = "has been skipped already: it cannot be undone any more" if is_past else "is not skipped"
        raise Conflict(f"{text_of(at_ms)} of job {job.id} {why}")
    return _changed(before, left, effective_ms(job, now_ms), audit)


def _changed(before: Snapshot, skips: Iterable[Skip], now_ms: int, audit: AuditEntry) -> Change:
    job = msgspec.structs.replace(
        before.job,
        skips=tuple(sorted(skips, key=lambda each: each.nominal_ms)),
        revision=before.job.revision + 1,
        updated_ms=now_ms,
    )
    # The fire row is written again, because it names the revision.
    return Change(job=job, fire=before.fire, audit=audit)


def _undecided(before: Snapshot) -> tuple[Skip, ...]:
    """Return the skips whose occurrences are not decided yet."""
    fire = before.fire
    return tuple(each for each in before.job.skips if fire is not None and each.nominal_ms >= fire.nominal_ms)


def first_undecided(before: Snapshot, now_ms: int) -> int:
    """Return the instant from which no occurrence is decided yet. Raises Conflict if the job has no occurrence to come."""
    awaited = awaited_ms(before)
    if awaited is None:
        raise Conflict(f"job {before.job.id} has no future occurrence")
    # What passes while the job is paused is decided by the pause.
    return max(awaited, now_ms + 1) if gives_up_paused(before.job) else awaited


def _next_unskipped(job: Job, from_ms: int, count: int, known: set[int]) -> list[int]:
    times = schedule_of(job).take(from_ms - 1, count + len(known))
    chosen = [time for time in times if time not in known][:count]
    if not chosen:
        raise Conflict(f"job {job.id} has no future occurrence to skip")
    return chosen


def require_occurrence(job: Job, at_ms: int, from_ms: int) -> None:
    """Raise InvalidInput if the job has no occurrence at an instant, and Conflict if it is decided."""
    following = schedule_of(job).next_after(at_ms - 1)
    if following != at_ms:
        hint = "the schedule has no later time" if following is None else f"the next one is {text_of(following)}"
        raise InvalidInput.of("/at", f"the schedule does not have this time; {hint}", text_of(at_ms))
    if at_ms < from_ms:
        raise Conflict(f"{text_of(at_ms)} of job {job.id} is decided: GET /v1/jobs/{job.id}/occurrences shows how")


def refuse_moved(job: Job, at_ms: int) -> None:
    """Raise Conflict if the occurrence at an instant was moved to another time."""
    for move in moves_in_force(job):
        if move.nominal_ms == at_ms:
            raise Conflict(
                f"{text_of(at_ms)} of job {job.id} was {move.text}: name its new time, or move that one back first"
            )


def refuse_dispatched(before: Snapshot, times: Sequence[int]) -> None:
    """Raise Conflict if one of these occurrences has an execution."""
    ids = {execution_id(before.job.id, time): time for time in times}
    for existing in before.existing(list(ids)):
        raise Conflict(
            f"{text_of(ids[existing])} of job {before.job.id} has been dispatched: "
            f"POST /v1/executions/{existing}/cancel cancels its execution"
        )
