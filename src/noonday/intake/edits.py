"""What may be done to a job: pure decisions over a snapshot of it."""

from collections.abc import Callable, Sequence

import msgspec

from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import EDITED, JOB_CANCELLED, PAUSED, RETURN_REASONS, Cause, State
from noonday.model.firing import Decided, Decision, Start, decide_overlap, first_unfired, still_wanted
from noonday.model.ids import ExecutionId, JobId, discriminator, execution_id
from noonday.model.job import Job, JobSpec, JobState, Overlap, anchor_of, rule_of, spread_ms, text_of
from noonday.model.pool import NOTICES_POOL
from noonday.ports.jobs import AuditEntry, Change, Execution, Fire, NewExecution, Scope, Snapshot

SAME_MOMENT_MS = 1_000
OVERDUE_COMPARED = 100
"""How many overdue occurrences an edit looks for in the new plan; with more, all are given up."""
WAS_PAUSED = "the job was paused"


def first_fire(job: Job, now_ms: int) -> Fire:
    """What a new job waits for. Raises InvalidInput if it would never fire."""
    spec = job.spec
    nominal_ms = job.anchor_ms if spec.one_shot else rule_of(spec, job.anchor_ms).next_after(now_ms)
    if nominal_ms is None:
        raise InvalidInput.of("/endAt" if spec.end_at else "/schedule", "this schedule has no time to come")
    return Fire(nominal_ms, nominal_ms + spread_ms(spec, job.id), spec.max_runs)


def replace(before: Snapshot, spec: JobSpec, payload: bytes | None, now_ms: int, audit: AuditEntry | None) -> Change:
    """A new definition. What has started keeps the one it was fired with; what is only early is asked back."""
    _refuse_if_cancelled(before.job)
    now_ms = _moment(before.job, now_ms)
    job = msgspec.structs.replace(
        before.job,
        spec=spec,
        payload=payload,
        revision=before.job.revision + 1,
        anchor_ms=anchor_of(spec, now_ms),
        updated_ms=now_ms,
    )
    open_ = before.open_in(Scope.OPEN)
    unstarted = [e for e in open_ if e.state is State.PENDING and e.fired_ms is None and e.started_ms is None]
    wanted = {e.id for e in unstarted if still_wanted(job, e.nominal_ms, e.cause)}
    given_up = [e for e in unstarted if e.id not in wanted]
    fire, decisions = _replanned(before, job, now_ms, sum(e.cause is Cause.SCHEDULE for e in given_up))
    asked_back = [(e.id, EDITED) for e in open_ if e.early and e.cancel is None]
    return Change(
        job=job,
        fire=fire,
        decisions=decisions,
        cancel=(*asked_back, *((e.id, EDITED) for e in given_up)),
        rebase=tuple(e.id for e in unstarted if e.id in wanted),
        audit=audit,
    )


def _replanned(before: Snapshot, job: Job, now_ms: int, runs_returned: int) -> tuple[Fire, tuple[Decision, ...]]:
    """`runs_returned`: how many of its executions are given up before they have started."""
    awaited = _awaited(before)
    from_ms = now_ms if awaited is None else min(awaited, now_ms)
    rule = rule_of(job.spec, job.anchor_ms)
    following = first_unfired(rule, job.id, job.anchor_ms if job.spec.one_shot else from_ms, before.existing)
    decisions: tuple[Decision, ...] = ()
    if (
        awaited is not None
        and awaited <= now_ms
        and (following != awaited or _drops_overdue(before, job, awaited, now_ms))
    ):
        passed_over = _passes_over(before.job)
        outcome, reason = (Decided.PAUSED, WAS_PAUSED) if passed_over else (Decided.EDITED, "the job was replaced")
        decisions = _given_up(before.job, awaited, now_ms, outcome, reason)
        if not job.spec.one_shot:
            following = first_unfired(rule, job.id, now_ms + 1, before.existing)
    runs_left = _runs_left(before, job, runs_returned)
    if following is None or runs_left == 0:
        return Fire(now_ms + 1, None, runs_left), decisions
    due_ms = None if job.state is JobState.PAUSED else following + spread_ms(job.spec, job.id)
    return Fire(following, due_ms, runs_left), decisions


def _awaited(before: Snapshot) -> int | None:
    """The time a job waits for, or would if it were not paused. None: nothing of it is to come."""
    job, fire = before.job, before.fire
    if fire is None or fire.runs_left == 0:
        return None
    if fire.due_ms is not None:
        return fire.nominal_ms
    if job.state is not JobState.PAUSED:
        return None
    return first_unfired(rule_of(job.spec, job.anchor_ms), job.id, fire.nominal_ms, before.existing)


def _drops_overdue(before: Snapshot, job: Job, awaited: int, now_ms: int) -> bool:
    """Whether some overdue occurrence of the former plan is not one of the new plan. Then all of them are decided: one that is in
    no plan any more would have neither an execution nor a decision."""
    if _passes_over(job):
        return True
    former, new = rule_of(before.job.spec, before.job.anchor_ms), rule_of(job.spec, job.anchor_ms)
    if former == new:
        return False
    overdue = [time for time in former.take(awaited, OVERDUE_COMPARED) if time <= now_ms]
    return len(overdue) == OVERDUE_COMPARED or any(new.next_after(time - 1) != time for time in overdue)


def _passes_over(job: Job) -> bool:
    """Whether the times that pass while a job is paused are gone."""
    return job.state is JobState.PAUSED and not job.spec.one_shot and not job.spec.catch_up.while_paused


def _runs_left(before: Snapshot, job: Job, runs_returned: int) -> int | None:
    """`maxRuns` counts from the job's creation, as far as it was counted."""
    if job.spec.max_runs is None:
        return None
    old_max = before.job.spec.max_runs
    left = before.fire.runs_left if before.fire else None
    used = old_max - left if old_max is not None and left is not None else 0
    return max(0, job.spec.max_runs - max(0, used - runs_returned))


def _given_up(job: Job, from_ms: int, until_ms: int, outcome: Decided, reason: str) -> tuple[Decision, ...]:
    """Occurrences from a due one up to an instant that will not fire."""
    rule = rule_of(job.spec, job.anchor_ms)
    last = rule.last_until(until_ms, from_ms) or from_ms
    return (Decision(job.id, from_ms, last, 1 + rule.count(from_ms, until_ms), outcome, reason),)


def upsert(
    before: Snapshot,
    wanted: Job,
    same_payload: Callable[[bytes | None, bytes | None], bool],
    now_ms: int,
    audit: AuditEntry | None,
) -> Change:
    """Create-or-update by unique key: nothing changes if nothing differs. An operator's pause survives.

    So a one-shot that is over does not run a second time for being asked for again: its key says that it is the same one.
    Raises Conflict if a one-shot that differs would never fire.
    """
    same = before.job.spec == wanted.spec and same_payload(before.job.payload, wanted.payload)
    if same:
        return Change()
    # The ciphertext is bound to the job that has the key.
    change = replace(before, wanted.spec, wanted.payload, now_ms, audit)
    assert change.job is not None
    assert change.fire is not None
    if change.job.spec.one_shot and change.job.state is JobState.ACTIVE and change.fire.due_ms is None:
        raise Conflict(
            f"job {before.job.id} has unique key {wanted.spec.unique_key!r} and has fired at {text_of(change.job.anchor_ms)} "
            "already: name a later runAt, or leave the job as it is",
            jobId=before.job.id,
        )
    return change


def why_nothing_comes(after: Snapshot) -> str | None:
    """Why a job that was just created or updated does not fire, if it does not."""
    job, fire = after.job, after.fire
    if fire is not None and fire.due_ms is not None:
        return None
    if job.state is JobState.PAUSED:
        return f"job {job.id} is PAUSED: it fires when somebody resumes it"
    if after.has_open:
        return f"job {job.id} has fired: nothing of it is to come but what is open now"
    if fire is not None and fire.runs_left == 0:
        return f"job {job.id} is COMPLETED: its maxRuns of {job.spec.max_runs} are used up"
    return f"job {job.id} is COMPLETED: it has no time to come"


def pause(before: Snapshot, now_ms: int, audit: AuditEntry) -> Change:
    """Nothing fires, and what waits on the timeline (a retry, a trigger) is held. What was handed out is asked back; whatever of
    it runs goes on, and its retry is held."""
    _refuse_if_cancelled(before.job)
    if before.job.state is JobState.PAUSED:
        return Change()
    if _completed(before):
        raise Conflict("the job is COMPLETED: nothing of it is to come")
    job = msgspec.structs.replace(before.job, state=JobState.PAUSED, updated_ms=_moment(before.job, now_ms))
    fire = msgspec.structs.replace(before.fire, due_ms=None) if before.fire else None
    open_ = before.open_in(Scope.UNBUFFERED)
    handed_out = tuple((e.id, PAUSED) for e in open_ if e.fired_ms is not None and e.cancel is None)
    waiting = tuple(e.id for e in open_ if e.waits_until_ms is not None)
    return Change(job=job, fire=fire, cancel=handed_out, suspend=waiting, audit=audit)


def halt(before: Snapshot, reason: str, now_ms: int, audit: AuditEntry) -> Change:
    """Paused for a reason that no user gave, until a user resumes it. What is over needs no halting."""
    job = before.job
    if (
        job.state is JobState.CANCELLED
        or job.halted is not None
        or (job.state is JobState.ACTIVE and _completed(before))
    ):
        return Change()
    if job.state is JobState.PAUSED:
        halted = msgspec.structs.replace(job, halted=reason, updated_ms=_moment(job, now_ms))
        return Change(job=halted, audit=audit)
    paused = pause(before, now_ms, audit)
    assert paused.job is not None
    return msgspec.structs.replace(paused, job=msgspec.structs.replace(paused.job, halted=reason))


def resume(before: Snapshot, now_ms: int, audit: AuditEntry) -> Change:
    """A resumed job makes up nothing unless it says so; a one-shot always fires. Whatever halted it is forgotten."""
    _refuse_if_cancelled(before.job)
    if before.job.state is not JobState.PAUSED:
        return Change()
    now_ms = _moment(before.job, now_ms)
    job = msgspec.structs.replace(before.job, state=JobState.ACTIVE, updated_ms=now_ms, halted=None)
    held = [e for e in before.open_in(Scope.UNBUFFERED) if _is_suspended(e)]
    release = tuple((e.id, max(now_ms, e.due_ms, e.suspended_until_ms or 0)) for e in held)
    fire, decisions = _resumed(before, now_ms) if before.fire else (None, ())
    return Change(job=job, fire=fire, decisions=decisions, release=release, audit=audit)


def _resumed(before: Snapshot, now_ms: int) -> tuple[Fire, tuple[Decision, ...]]:
    job, fire = before.job, before.fire
    assert fire is not None
    awaited = _awaited(before)
    if awaited is None:
        return fire, ()
    spread = spread_ms(job.spec, job.id)
    if awaited > now_ms or not _passes_over(job):
        return Fire(awaited, awaited + spread, fire.runs_left), ()
    rule = rule_of(job.spec, job.anchor_ms)
    following = first_unfired(rule, job.id, now_ms + 1, before.existing)
    decisions = _given_up(job, awaited, now_ms, Decided.PAUSED, WAS_PAUSED)
    if following is None:
        return Fire(now_ms + 1, None, fire.runs_left), decisions
    return Fire(following, following + spread, fire.runs_left), decisions


def _is_suspended(execution: Execution) -> bool:
    """It waits on the timeline without a time."""
    return (
        execution.state is State.PENDING
        and execution.fired_ms is None
        and not execution.buffered
        and execution.waits_until_ms is None
    )


def delete(before: Snapshot, now_ms: int, audit: AuditEntry) -> Change:
    """No future fires, and nothing that has not started starts. What runs goes on to its end, and is not retried."""
    if before.job.state is JobState.CANCELLED:
        return Change()
    now_ms = _moment(before.job, now_ms)
    job = msgspec.structs.replace(before.job, state=JobState.CANCELLED, updated_ms=now_ms)
    fire = msgspec.structs.replace(before.fire, due_ms=None) if before.fire else None
    decisions: tuple[Decision, ...] = ()
    awaited = _awaited(before)
    if awaited is not None and awaited <= now_ms:
        why = (Decided.CANCELLED, "the job was cancelled")
        if _passes_over(before.job):
            why = (Decided.PAUSED, WAS_PAUSED)
        decisions = _given_up(before.job, awaited, now_ms, *why)
    open_ = before.open_in(Scope.OPEN)
    cancel = tuple((e.id, JOB_CANCELLED) for e in open_ if e.cancel is None or e.cancel in RETURN_REASONS)
    return Change(job=job, fire=fire, decisions=decisions, cancel=cancel, audit=audit)


def trigger(before: Snapshot, key: str, now_ms: int, audit: AuditEntry) -> Change:
    """Run it now, besides its schedule."""
    _refuse_if_cancelled(before.job)
    job = before.job
    if job.spec.target.pool == NOTICES_POOL:
        raise Conflict(
            "a notice is sent once: POST /v1/alert-preferences/{id}/test sends another to the same recipient"
        )
    start, cancel = _overlap(before)
    if start is Start.SKIP:
        raise Conflict(f"overlap is {job.spec.overlap} and an execution of this job is open")
    open_ = before.open_in(Scope.UNBUFFERED) if cancel else ()
    others = tuple((e.id, f"overlap {job.spec.overlap}") for e in open_)
    execution = NewExecution(
        id_of_trigger(job.id, key, now_ms), now_ms, now_ms, Cause.TRIGGER, buffered=start is Start.BUFFER
    )
    return Change(executions=(execution,), cancel=others, audit=audit)


def id_of_trigger(job_id: JobId, key: str, now_ms: int) -> ExecutionId:
    return execution_id(job_id, now_ms, discriminator("trigger", key))


def _overlap(before: Snapshot) -> tuple[Start, bool]:
    return decide_overlap(before.job.spec.overlap, before.has_open, before.has_buffered)


def backfill(before: Snapshot, times: list[int], backfill_id: str, now_ms: int, audit: AuditEntry | None) -> Change:
    """Executions for past times, besides those the schedule made. The same backfill makes each once."""
    _refuse_if_cancelled(before.job)
    tag = discriminator("backfill", backfill_id)
    # One after the other unless the job allows overlap: a backfill is never skipped.
    serial = before.job.spec.overlap is not Overlap.ALLOW
    wanted = {execution_id(before.job.id, time, tag): time for time in times}
    existing = before.existing(list(wanted))
    missing = [(new, time) for new, time in wanted.items() if new not in existing]
    made = [
        NewExecution(new, time, now_ms, Cause.BACKFILL, buffered=serial and (place > 0 or before.has_open))
        for place, (new, time) in enumerate(missing)
    ]
    return Change(executions=tuple(made), audit=audit)


def cancel_execution(before: Snapshot, execution: ExecutionId, reason: str, audit: AuditEntry) -> Change:
    row = before.find(execution)
    if row is None or row.state not in (State.PENDING, State.RUNNING):
        state = row.state.name if row else "ended"
        raise Conflict(f"the execution is {state} already", state=state)
    return Change(cancel=((execution, reason),), audit=audit)


def retry_dead(before: Snapshot, dead: Execution, now_ms: int, audit: AuditEntry | None) -> Change:
    """A dead letter is tried again as a new execution of the same occurrence."""
    _refuse_if_cancelled(before.job)
    start, _ = _overlap(before)
    new = id_of_retry(dead)
    execution = NewExecution(new, dead.nominal_ms, now_ms, Cause.RETRY_OF, start is not Start.NOW, dead.id)
    return Change(executions=(execution,), dead=((dead.id, new),), audit=audit)


def id_of_retry(dead: Execution) -> ExecutionId:
    return execution_id(dead.job_id, dead.nominal_ms, discriminator("retry", dead.id))


class Again(msgspec.Struct, frozen=True):
    """An execution that ended, and what it is run again as."""

    was: Execution
    new: ExecutionId
    revision: int
    """What it says: that of the one before, or the job's present one if that is not kept any more."""
    resolves: bool = False
    """Whether a dead letter is dealt with by this."""


def run_again(before: Snapshot, wanted: Sequence[Again], now_ms: int, audit: AuditEntry | None) -> Change:
    """Executions that ended, however they did, as new ones of the same occurrences. Never skipped: unless the job allows
    overlap, one after the other."""
    _refuse_if_cancelled(before.job)
    serial = before.job.spec.overlap is not Overlap.ALLOW
    made = [
        NewExecution(
            each.new,
            each.was.nominal_ms,
            now_ms,
            Cause.RETRY_OF,
            buffered=serial and (place > 0 or before.has_open),
            retry_of=each.was.id,
            revision=each.revision,
        )
        for place, each in enumerate(sorted(wanted, key=lambda each: each.was.id))
    ]
    dead = tuple((each.was.id, each.new) for each in wanted if each.resolves)
    return Change(executions=tuple(made), dead=dead, audit=audit)


def archive_dead(dead: ExecutionId, audit: AuditEntry | None) -> Change:
    return Change(dead=((dead, None),), audit=audit)


def _moment(job: Job, now_ms: int) -> int:
    """When an edit takes effect: after the one before it, for of two in one millisecond each would decide that millisecond.

    A clock that was set back is believed all the same.
    """
    return job.updated_ms + 1 if 0 <= job.updated_ms - now_ms < SAME_MOMENT_MS else now_ms


def _completed(before: Snapshot) -> bool:
    return (before.fire is None or before.fire.due_ms is None) and not before.has_open


def _refuse_if_cancelled(job: Job) -> None:
    if job.state is JobState.CANCELLED:
        raise Conflict("the job was cancelled: create a new one", state="CANCELLED")
