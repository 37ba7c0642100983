"""The schedule of a job with its skips and moves: when it stops, and which of its occurrences do not fire.

The schedule stops at the times of its rule and at the times to which occurrences were moved. It stops at an occurrence that is
left out, because it was skipped or moved to another time, too: its decision is made when its time has come. Until then the skip
or move can be undone.
"""

from collections.abc import Sequence

from noonday.model.job import Job, rule_of
from noonday.model.move import Move
from noonday.model.schedule import Rule, RuleWith, RuleWithout, Schedule
from noonday.model.skip import Skip

LeftOut = Skip | Move
"""An occurrence that does not fire at its time."""


def schedule_of(job: Job) -> Rule | RuleWith:
    """Return the times at which the schedule of a job stops: its occurrences, also those that are left out."""
    rule = rule_of(job.spec, job.anchor_ms)
    if not job.moves:
        return rule
    added = {move.to_ms for move in moves_in_force(job) if not has(rule, move.to_ms)}
    return RuleWith(rule, tuple(sorted(added))) if added else rule


def has(schedule: Schedule, at_ms: int) -> bool:
    """Return whether a schedule has an occurrence at an instant."""
    return schedule.next_after(at_ms - 1) == at_ms


def moves_in_force(job: Job) -> tuple[Move, ...]:
    """Return the moves of a job whose original times the present schedule has."""
    if not job.moves or job.spec.one_shot:
        return ()
    rule = rule_of(job.spec, job.anchor_ms)
    return tuple(move for move in job.moves if has(rule, move.origin_ms))


def skips_in_force(job: Job, from_ms: int = 0) -> tuple[Skip, ...]:
    """Return the skips of occurrences from an instant on that the present schedule has."""
    if not job.skips:
        return ()
    schedule = schedule_of(job)
    return tuple(skip for skip in job.skips if skip.nominal_ms >= from_ms and has(schedule, skip.nominal_ms))


def left_out_from(job: Job, from_ms: int) -> tuple[LeftOut, ...]:
    """Return the occurrences from an instant on that do not fire at their time, in order."""
    if not job.skips and not job.moves:
        return ()
    schedule = schedule_of(job)
    # After a move of a moved occurrence, the time in between may be forgotten once it is decided.
    moved = (move for move in moves_in_force(job) if move.nominal_ms >= from_ms and has(schedule, move.nominal_ms))
    return tuple(sorted((*skips_in_force(job, from_ms), *moved), key=lambda each: each.nominal_ms))


def without(schedule: Rule | RuleWith, left_out: Sequence[LeftOut]) -> Schedule:
    """Return a schedule without the occurrences that are left out."""
    return RuleWithout(schedule, tuple(each.nominal_ms for each in left_out)) if left_out else schedule


def undecided_times(job: Job, decided_until_ms: int) -> Schedule:
    """Return the schedule of a job without the occurrences that are left out and decided, because they have no executions.

    `decided_until_ms`: the time of the fire row. An occurrence may be decided a moment ahead of its time.
    """
    return without(schedule_of(job), [each for each in left_out_from(job, 0) if each.nominal_ms < decided_until_ms])
