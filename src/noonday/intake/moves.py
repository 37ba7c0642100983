"""Moves of occurrences: a person lets one occurrence of a job fire at another time, and takes it back before its time.

A move is part of the job, as a skip is, and raises its revision: a fire that was planned before is refused by the store. The
schedule then has the new time. It keeps the former one, too, at which it decides that the occurrence was moved. Both times have
their own execution id, so an occurrence cannot fire at both.
"""

import msgspec

from noonday.intake.change_times import effective_ms, refuse_if_cancelled, require_ahead
from noonday.intake.skips import first_undecided, refuse_dispatched, refuse_moved, require_occurrence
from noonday.model.audit import AuditEntry
from noonday.model.change import Change
from noonday.model.errors import Conflict
from noonday.model.firing import Fire
from noonday.model.ids import execution_id
from noonday.model.job import Job, JobState, spread_ms, text_of
from noonday.model.left_out import has, schedule_of
from noonday.model.move import MOST_MOVES, Move
from noonday.model.snapshot import Scope, Snapshot


def move(
    before: Snapshot, at_ms: int, to_ms: int, by: str, reason: str | None, now_ms: int, audit: AuditEntry
) -> Change:
    """Move the occurrence at an instant to another one.

    A moved occurrence is named by its new time. Moving it again replaces the move, and moving it back to its former time ends
    it, as long as the former time is not decided.

    Raises InvalidInput for an instant that is no occurrence, and for a new time in the past. Raises Conflict for an occurrence
    that is decided, dispatched or skipped, for a new time at which the job has an occurrence, and for too many moves.
    """
    job = before.job
    refuse_if_cancelled(job)
    if job.spec.one_shot:
        raise Conflict(
            f"job {job.id} runs once: PATCH /v1/jobs/{job.id} (noonday job change) with another runAt changes its time"
        )
    require_ahead(to_ms, "/to", now_ms)
    require_occurrence(job, at_ms, first_undecided(before, now_ms))
    refuse_moved(job, at_ms)
    _refuse_skipped(job, at_ms)
    refuse_dispatched(before, [at_ms])
    if to_ms == at_ms:
        return Change()
    kept = _needed(before)
    former = next((each for each in kept if each.to_ms == at_ms and _is_undecided(before, each.nominal_ms)), None)
    kept = tuple(each for each in kept if each is not former)
    if former is not None and former.nominal_ms == to_ms:
        return _changed(before, kept, to_ms, now_ms, audit)
    _refuse_taken(before, to_ms)
    leaves_ms = at_ms if former is None else former.nominal_ms
    new = Move(_origin_of(job, at_ms), leaves_ms, to_ms, by, now_ms, reason)
    if len(kept) == MOST_MOVES:
        raise Conflict(
            f"job {job.id} has {MOST_MOVES} moved occurrences, the most that are allowed: change its schedule instead"
        )
    return _changed(before, (*kept, new), to_ms, now_ms, audit)


def _changed(before: Snapshot, moves: tuple[Move, ...], to_ms: int, now_ms: int, audit: AuditEntry) -> Change:
    fire = before.fire
    assert fire is not None
    job = msgspec.structs.replace(
        before.job, moves=moves, revision=before.job.revision + 1, updated_ms=effective_ms(before.job, now_ms)
    )
    # The former time or the new one may be the next one.
    next_ms = schedule_of(job).next_after(min(fire.nominal_ms, to_ms) - 1)
    assert next_ms is not None
    due_ms = None if job.state is JobState.PAUSED else next_ms + spread_ms(job.spec, job.id)
    return Change(job=job, fire=Fire(next_ms, due_ms, fire.runs_left), audit=audit)


def _is_undecided(before: Snapshot, at_ms: int) -> bool:
    return before.fire is not None and at_ms >= before.fire.nominal_ms


def _needed(before: Snapshot) -> tuple[Move, ...]:
    """Return the moves of which a time is not decided yet, or whose execution is open."""
    moves = before.job.moves
    if all(_is_undecided(before, max(each.nominal_ms, each.to_ms)) for each in moves):
        return moves
    open_ = {e.nominal_ms for e in before.open_in(Scope.OPEN)}
    return tuple(
        each for each in moves if _is_undecided(before, max(each.nominal_ms, each.to_ms)) or each.to_ms in open_
    )


def _origin_of(job: Job, at_ms: int) -> int:
    """Return the time of the rule from which an occurrence was moved, perhaps more than once."""
    return next((each.origin_ms for each in job.moves if each.to_ms == at_ms), at_ms)


def _refuse_skipped(job: Job, at_ms: int) -> None:
    if any(each.nominal_ms == at_ms for each in job.skips):
        raise Conflict(
            f"{text_of(at_ms)} of job {job.id} is skipped: DELETE /v1/jobs/{job.id}/skip?at={text_of(at_ms)} undoes that"
        )


def _refuse_taken(before: Snapshot, to_ms: int) -> None:
    """Raise Conflict if the job has an occurrence at the new time, or if one after the new time is decided already."""
    job, fire = before.job, before.fire
    assert fire is not None
    schedule = schedule_of(job)
    if has(schedule, to_ms) or before.existing([execution_id(job.id, to_ms)]):
        raise Conflict(
            f"{text_of(to_ms)} is an occurrence of job {job.id} already: pass another time, or skip the occurrence"
        )
    following = schedule.next_after(to_ms)
    if following is not None and following < fire.nominal_ms:
        raise Conflict(
            f"{text_of(following)} of job {job.id} is dispatched already, so no occurrence can precede it any more: "
            "pass a later time"
        )
