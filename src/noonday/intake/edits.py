"""Edits of a job: pure decisions from a snapshot of the job to a change."""

from collections.abc import Callable, Sequence

import msgspec

from noonday.intake.change_times import effective_ms, refuse_if_cancelled
from noonday.intake.ends_of_pauses import with_end_of_pause
from noonday.model.audit import AuditEntry
from noonday.model.change import Change, NewExecution
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import EDITED, JOB_CANCELLED, PAUSED, RETURN_REASONS, Cause, Execution, State
from noonday.model.firing import (
    Decision,
    DecisionOutcome,
    Fire,
    Start,
    apart_from_left_out,
    decide_overlap,
    first_unfired,
    still_wanted,
)
from noonday.model.ids import ExecutionId, discriminator, execution_id
from noonday.model.job import Job, JobSpec, JobState, Overlap, anchor_of, rule_of, spread_ms, text_of
from noonday.model.left_out import moves_in_force, schedule_of, skips_in_force, undecided_times
from noonday.model.snapshot import Scope, Snapshot

OVERDUE_COMPARED = 100
"""Maximum number of overdue occurrences that an edit compares with the new plan. If there are more, it gives up all of them."""
WAS_PAUSED = "the job was paused"


def first_fire(job: Job, now_ms: int) -> Fire:
    """Return the first fire row of a new job. Raises InvalidInput if the job would never fire."""
    spec = job.spec
    nominal_ms = job.anchor_ms if spec.one_shot else rule_of(spec, job.anchor_ms).next_after(now_ms)
    if nominal_ms is None:
        raise InvalidInput.of(
            "/endAt" if spec.end_at else "/schedule", "the schedule has no future time: it would never fire"
        )
    return Fire(nominal_ms, nominal_ms + spread_ms(spec, job.id), spec.max_runs)


def replace(
    before: Snapshot,
    spec: JobSpec,
    payload: bytes | None,
    now_ms: int,
    audit: AuditEntry | None,
    *,
    keeps_time: bool = False,
) -> Change:
    """Give a job a new definition. With `keeps_time`, a one-shot whose time is not changed keeps it.

    Started executions keep the definition they were fired with. Dispatched ones that have not started are revoked. Waiting ones
    continue under the new definition, or are cancelled if the new plan does not have their time.
    """
    refuse_if_cancelled(before.job)
    now_ms = effective_ms(before.job, now_ms)
    anchor_ms = before.job.anchor_ms if keeps_time and _same_time(before.job.spec, spec) else anchor_of(spec, now_ms)
    job = msgspec.structs.replace(before.job, spec=spec, payload=payload, anchor_ms=anchor_ms, updated_ms=now_ms)
    job = msgspec.structs.replace(job, revision=job.revision + 1, skips=skips_in_force(job), moves=moves_in_force(job))
    open_ = before.open_in(Scope.OPEN)
    unstarted = [e for e in open_ if e.state is State.PENDING and e.fired_ms is None and e.started_ms is None]
    continued = {e.id for e in unstarted if still_wanted(job, e.nominal_ms, e.cause)}
    given_up = [e for e in unstarted if e.id not in continued]
    fire, decisions = _replanned(before, job, now_ms, sum(e.cause is Cause.SCHEDULE for e in given_up))
    revoked = [(e.id, EDITED) for e in open_ if e.awaits_start and e.revocation is None]
    return Change(
        job=job,
        fire=fire,
        decisions=decisions,
        cancel=(*revoked, *((e.id, EDITED) for e in given_up)),
        rebase=tuple(e.id for e in unstarted if e.id in continued),
        audit=audit,
    )


def _replanned(before: Snapshot, job: Job, now_ms: int, runs_returned: int) -> tuple[Fire, tuple[Decision, ...]]:
    """Return the fire row under the new definition, and decisions about overdue occurrences that the edit gives up.

    `runs_returned`: number of scheduled executions that are cancelled before they have started.
    """
    awaited = awaited_ms(before)
    from_ms = now_ms if awaited is None else min(awaited, now_ms)
    times = undecided_times(job, before.fire.nominal_ms if before.fire else 0)
    following = first_unfired(times, job.id, job.anchor_ms if job.spec.one_shot else from_ms, before.existing)
    if awaited is None and job.spec.one_shot and before.job.spec.one_shot and job.anchor_ms == before.job.anchor_ms:
        following = None  # It has fired, even if its execution is deleted by now.
    decisions: tuple[Decision, ...] = ()
    if (
        awaited is not None
        and awaited <= now_ms
        and (following != awaited or _drops_overdue(before, job, awaited, now_ms))
    ):
        was_paused = gives_up_paused(before.job)
        outcome = DecisionOutcome.PAUSED if was_paused else DecisionOutcome.EDITED
        reason = WAS_PAUSED if was_paused else "the job was replaced"
        decisions = _given_up(before.job, awaited, now_ms, outcome, reason)
        if not job.spec.one_shot:
            following = first_unfired(times, job.id, now_ms + 1, before.existing)
    runs_left = _runs_left(before, job, runs_returned)
    if following is None or runs_left == 0:
        return Fire(now_ms + 1, None, runs_left), decisions
    due_ms = None if job.state is JobState.PAUSED else following + spread_ms(job.spec, job.id)
    return Fire(following, due_ms, runs_left), decisions


def _same_time(former: JobSpec, new: JobSpec) -> bool:
    return (former.type, former.run_at, former.delay_sec) == (new.type, new.run_at, new.delay_sec)


def awaited_ms(before: Snapshot) -> int | None:
    """Return the time a job waits for, or would wait for if it were not paused. None if it has no future time."""
    job, fire = before.job, before.fire
    if fire is None or fire.runs_left == 0:
        return None
    if fire.due_ms is not None:
        return fire.nominal_ms
    if job.state is not JobState.PAUSED:
        return None
    return first_unfired(schedule_of(job), job.id, fire.nominal_ms, before.existing)


def _drops_overdue(before: Snapshot, job: Job, awaited: int, now_ms: int) -> bool:
    """Return whether the new plan lacks an overdue occurrence of the former plan. Then all overdue occurrences are given up.

    Otherwise the missing one would have neither an execution nor a decision.
    """
    if gives_up_paused(job):
        return True
    former, new = schedule_of(before.job), schedule_of(job)
    if former == new:
        return False
    overdue = [time for time in former.take(awaited, OVERDUE_COMPARED) if time <= now_ms]
    return len(overdue) == OVERDUE_COMPARED or any(new.next_after(time - 1) != time for time in overdue)


def gives_up_paused(job: Job) -> bool:
    """Return whether a job is paused and gives up the occurrences that pass meanwhile."""
    return job.state is JobState.PAUSED and not job.spec.one_shot and not job.spec.catch_up.while_paused


def _runs_left(before: Snapshot, job: Job, runs_returned: int) -> int | None:
    """Return the runs left under the new `maxRuns`. Runs count from the job's creation, or from when it first had a `maxRuns`."""
    if job.spec.max_runs is None:
        return None
    old_max = before.job.spec.max_runs
    left = before.fire.runs_left if before.fire else None
    used = old_max - left if old_max is not None and left is not None else 0
    return max(0, job.spec.max_runs - max(0, used - runs_returned))


def _given_up(job: Job, from_ms: int, until_ms: int, outcome: DecisionOutcome, reason: str) -> tuple[Decision, ...]:
    """Return the decision about all occurrences from a due one up to an instant, none of which will fire."""
    schedule = schedule_of(job)
    last = schedule.last_until(until_ms, from_ms) or from_ms
    count = 1 + schedule.count(from_ms, until_ms)
    return apart_from_left_out(job, Decision(job.id, from_ms, last, count, outcome, reason))


def upsert(
    before: Snapshot,
    new: Job,
    same_payload: Callable[[bytes | None, bytes | None], bool],
    now_ms: int,
    audit: AuditEntry | None,
) -> Change:
    """Update the job that has the unique key of a new one. Nothing changes if they are equal. A pause remains.

    So a finished one-shot does not run again when it is created again: the same key means the same job. Raises Conflict if a
    changed one-shot would never fire.
    """
    same = before.job.spec == new.spec and same_payload(before.job.payload, new.payload)
    if same:
        return Change()
    # The payload of `new` is encrypted for the existing job.
    change = replace(before, new.spec, new.payload, now_ms, audit)
    assert change.job is not None
    assert change.fire is not None
    if change.job.spec.one_shot and change.job.state is JobState.ACTIVE and change.fire.due_ms is None:
        raise Conflict(
            f"job {before.job.id} has unique key {new.spec.unique_key!r} and has already fired at "
            f"{text_of(change.job.anchor_ms)}: set a later runAt, or leave the job unchanged",
            jobId=before.job.id,
        )
    return change


def why_no_next_fire(after: Snapshot) -> str | None:
    """Return why a created or updated job has no next fire, or None if it has one."""
    job, fire = after.job, after.fire
    if fire is not None and fire.due_ms is not None:
        return None
    if job.state is JobState.PAUSED:
        return f"job {job.id} is PAUSED: it fires after it is resumed"
    if after.has_open:
        return f"job {job.id} has fired: it has no future time, but an execution is open"
    if fire is not None and fire.runs_left == 0:
        return f"job {job.id} is {after.ended_as}: its maxRuns of {job.spec.max_runs} are used up"
    return f"job {job.id} is {after.ended_as}: it has no future time"


def pause(before: Snapshot, now_ms: int, audit: AuditEntry, until_ms: int | None = None) -> Change:
    """Pause a job, until an instant if one is given: nothing fires, and dispatch rows (retries, triggers) are suspended.

    Dispatched executions are revoked. Those that have started continue, and their retries are suspended. The pause of a paused
    job gets another end.
    """
    refuse_if_cancelled(before.job)
    if before.job.state is JobState.PAUSED:
        return with_end_of_pause(before.job, until_ms, now_ms, audit)
    if _completed(before):
        raise Conflict(f"the job is {before.ended_as}: there is nothing to pause")
    now_ms = effective_ms(before.job, now_ms)
    job = msgspec.structs.replace(before.job, state=JobState.PAUSED, updated_ms=now_ms, paused_until_ms=until_ms)
    fire = msgspec.structs.replace(before.fire, due_ms=None) if before.fire else None
    open_ = before.open_in(Scope.UNBUFFERED)
    dispatched = tuple((e.id, PAUSED) for e in open_ if e.fired_ms is not None and e.revocation is None)
    waiting = tuple(e.id for e in open_ if e.waits_until_ms is not None)
    return Change(job=job, fire=fire, cancel=dispatched, suspend=waiting, audit=audit)


def halt(before: Snapshot, reason: str, now_ms: int, audit: AuditEntry) -> Change:
    """Pause a job for a reason that no user gave, until a user resumes it. A finished job is not changed."""
    job = before.job
    if (
        job.state is JobState.CANCELLED
        or job.halted is not None
        or (job.state is JobState.ACTIVE and _completed(before))
    ):
        return Change()
    if job.state is JobState.PAUSED:
        now_ms = effective_ms(job, now_ms)
        halted = msgspec.structs.replace(job, halted=reason, updated_ms=now_ms, paused_until_ms=None)
        return Change(job=halted, audit=audit)
    paused = pause(before, now_ms, audit)
    assert paused.job is not None
    return msgspec.structs.replace(paused, job=msgspec.structs.replace(paused.job, halted=reason))


def resume(before: Snapshot, now_ms: int, audit: AuditEntry) -> Change:
    """Resume a job and clear the reason why it was halted.

    Occurrences that passed while it was paused are given up, unless its catch-up covers pauses. A one-shot always fires.
    """
    refuse_if_cancelled(before.job)
    if before.job.state is not JobState.PAUSED:
        return Change()
    return resumed_at(before, effective_ms(before.job, now_ms), audit)


def resumed_at(before: Snapshot, at_ms: int, audit: AuditEntry) -> Change:
    """Return the change that resumes a paused job as of an instant after its last change."""
    job = msgspec.structs.replace(
        before.job, state=JobState.ACTIVE, updated_ms=at_ms, halted=None, paused_until_ms=None
    )
    suspended = [e for e in before.open_in(Scope.UNBUFFERED) if _is_suspended(e)]
    release = tuple((e.id, max(at_ms, e.due_ms, e.suspended_until_ms or 0)) for e in suspended)
    fire, decisions = _resumed(before, at_ms) if before.fire else (None, ())
    return Change(job=job, fire=fire, decisions=decisions, release=release, audit=audit)


def _resumed(before: Snapshot, now_ms: int) -> tuple[Fire, tuple[Decision, ...]]:
    job, fire = before.job, before.fire
    assert fire is not None
    awaited = awaited_ms(before)
    if awaited is None:
        return fire, ()
    spread = spread_ms(job.spec, job.id)
    if awaited > now_ms or not gives_up_paused(job):
        return Fire(awaited, awaited + spread, fire.runs_left), ()
    following = first_unfired(schedule_of(job), job.id, now_ms + 1, before.existing)
    decisions = _given_up(job, awaited, now_ms, DecisionOutcome.PAUSED, WAS_PAUSED)
    if following is None:
        return Fire(now_ms + 1, None, fire.runs_left), decisions
    return Fire(following, following + spread, fire.runs_left), decisions


def _is_suspended(execution: Execution) -> bool:
    """Return whether an execution has a dispatch row without a due time."""
    return (
        execution.state is State.PENDING
        and execution.fired_ms is None
        and not execution.buffered
        and execution.waits_until_ms is None
    )


def delete(before: Snapshot, now_ms: int, audit: AuditEntry) -> Change:
    """Cancel a job: it does not fire again, and nothing starts. Running executions finish and are not retried."""
    if before.job.state is JobState.CANCELLED:
        return Change()
    now_ms = effective_ms(before.job, now_ms)
    job = msgspec.structs.replace(before.job, state=JobState.CANCELLED, updated_ms=now_ms, paused_until_ms=None)
    fire = msgspec.structs.replace(before.fire, due_ms=None) if before.fire else None
    decisions: tuple[Decision, ...] = ()
    awaited = awaited_ms(before)
    if awaited is not None and awaited <= now_ms:
        outcome, reason = DecisionOutcome.CANCELLED, "the job was cancelled"
        if gives_up_paused(before.job):
            outcome, reason = DecisionOutcome.PAUSED, WAS_PAUSED
        decisions = _given_up(before.job, awaited, now_ms, outcome, reason)
    open_ = before.open_in(Scope.OPEN)
    cancel = tuple((e.id, JOB_CANCELLED) for e in open_ if e.revocation is None or e.revocation in RETURN_REASONS)
    return Change(job=job, fire=fire, decisions=decisions, cancel=cancel, audit=audit)


def overlap_of(before: Snapshot) -> tuple[Start, bool]:
    """Return whether a new execution of a job starts, waits or is skipped, and whether the open ones are cancelled."""
    return decide_overlap(before.job.spec.overlap, before.has_open, before.has_buffered)


def backfill(before: Snapshot, times: list[int], backfill_id: str, now_ms: int, audit: AuditEntry | None) -> Change:
    """Create executions for past times, in addition to those of the schedule. One backfill id creates each of them once."""
    refuse_if_cancelled(before.job)
    tag = discriminator("backfill", backfill_id)
    # Unless the job allows overlap, they run one after the other. A backfill is never skipped.
    serial = before.job.spec.overlap is not Overlap.ALLOW
    time_of = {execution_id(before.job.id, time, tag): time for time in times}
    existing = before.existing(list(time_of))
    missing = [(new, time) for new, time in time_of.items() if new not in existing]
    created = [
        NewExecution(new, time, now_ms, Cause.BACKFILL, buffered=serial and (index > 0 or before.has_open))
        for index, (new, time) in enumerate(missing)
    ]
    return Change(executions=tuple(created), audit=audit)


def cancel_execution(before: Snapshot, execution: ExecutionId, reason: str, audit: AuditEntry) -> Change:
    """Cancel a pending or running execution. Raises Conflict if it has ended."""
    row = before.find(execution)
    if row is None or row.state not in (State.PENDING, State.RUNNING):
        state = row.state.name if row else "ended"
        raise Conflict(f"the execution is already {state}", state=state)
    return Change(cancel=((execution, reason),), audit=audit)


def retry_dead(before: Snapshot, dead: Execution, now_ms: int, audit: AuditEntry | None) -> Change:
    """Retry a dead letter as a new execution of the same occurrence."""
    refuse_if_cancelled(before.job)
    start, _ = overlap_of(before)
    new = id_of_retry(dead)
    execution = NewExecution(new, dead.nominal_ms, now_ms, Cause.RETRY_OF, start is not Start.NOW, dead.id)
    return Change(executions=(execution,), dead=((dead.id, new),), audit=audit)


def id_of_retry(dead: Execution) -> ExecutionId:
    return execution_id(dead.job_id, dead.nominal_ms, discriminator("retry", dead.id))


class Resend(msgspec.Struct, frozen=True):
    """An ended execution, and the new execution that repeats it."""

    was: Execution
    new: ExecutionId
    revision: int
    """Revision of the job to run: that of `was`, or the present one if that is no longer stored."""
    resolves: bool = False
    """True if this resolves the dead letter of `was`."""


def run_again(before: Snapshot, resends: Sequence[Resend], now_ms: int, audit: AuditEntry | None) -> Change:
    """Repeat ended executions, whatever their outcome, as new executions of the same occurrences.

    None is skipped. Unless the job allows overlap, they run one after the other.
    """
    refuse_if_cancelled(before.job)
    serial = before.job.spec.overlap is not Overlap.ALLOW
    created = [
        NewExecution(
            each.new,
            each.was.nominal_ms,
            now_ms,
            Cause.RETRY_OF,
            buffered=serial and (index > 0 or before.has_open),
            retry_of=each.was.id,
            revision=each.revision,
        )
        for index, each in enumerate(sorted(resends, key=lambda each: each.was.id))
    ]
    dead = tuple((each.was.id, each.new) for each in resends if each.resolves)
    return Change(executions=tuple(created), dead=dead, audit=audit)


def archive_dead(dead: ExecutionId, audit: AuditEntry | None) -> Change:
    """Resolve a dead letter without a retry."""
    return Change(dead=((dead, None),), audit=audit)


def _completed(before: Snapshot) -> bool:
    return (before.fire is None or before.fire.due_ms is None) and not before.has_open
