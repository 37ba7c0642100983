"""Fire plans: which due occurrences of a job fire, which do not and why, and when the next one is due."""

from collections.abc import Callable, Collection, Sequence
from enum import IntEnum, StrEnum

import msgspec

from noonday.model.execution import Cause
from noonday.model.ids import ExecutionId, JobId, execution_id
from noonday.model.job import CatchUpPolicy, Job, JobSpec, JobState, Overlap, Priority, spread_ms
from noonday.model.left_out import LeftOut, has, left_out_from, schedule_of, without
from noonday.model.move import Move
from noonday.model.schedule import Schedule

MISFIRE_MS = 10_000
"""An occurrence that is later than this was missed, and the catch-up policy decides. Up to this it is merely late."""
FIRES_A_TURN = 100
"""Maximum number of occurrences of one job that a single fire starts. The rest follow with the next fire."""
LANES = (Priority.HIGH, Priority.NORMAL, Priority.LOW)


class Kind(IntEnum):
    """FIRE: the next occurrence of a job. DISPATCH: an execution to dispatch, such as a retry or a trigger."""

    FIRE = 0
    DISPATCH = 1


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One row of the timeline. Its fields identify the row so exactly that a stale copy is always recognised."""

    due_ms: int
    key: str
    """FIRE: the job's id. DISPATCH: the execution's id."""
    kind: int
    number: int
    """FIRE: the revision of the job. DISPATCH: the dispatch number."""
    nominal_ms: int
    partition: int
    tenant: str
    pool: str
    lane: int
    """Index into LANES."""
    early: int
    """1 if its job allows overlap and has no key. It may be dispatched ahead of its instant, and the worker waits until then."""
    recurring: int
    """1 if the fire needs a plan: to compute the next time, or to check a start deadline."""


class DecisionOutcome(StrEnum):
    """The outcome of occurrences that did not fire."""

    MISSED = "MISSED"
    SKIPPED = "SKIPPED"
    MOVED = "MOVED"
    PAUSED = "PAUSED"
    EXPIRED = "EXPIRED"
    EDITED = "EDITED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"


LEFT_OUT = frozenset({DecisionOutcome.SKIPPED, DecisionOutcome.MOVED})
"""The outcomes of single occurrences that a person decided about in advance."""


class Decision(msgspec.Struct, frozen=True):
    """A range of occurrences of a job that did not fire, from `from_ms` to `to_ms` (inclusive), with the reason."""

    job_id: JobId
    from_ms: int
    to_ms: int
    count: int
    outcome: DecisionOutcome
    reason: str


class FirePlan(msgspec.Struct, frozen=True):
    """The effect of firing one entry, decided before the store fires it."""

    fires: tuple[int, ...]
    """Nominal times that become executions."""
    decisions: tuple[Decision, ...] = ()
    next_ms: int | None = None
    """The next nominal time of the job, if it has runs left. None if its rule has no further time."""


def plan_fire(job: Job, nominal_ms: int, now_ms: int, runs_left: int | None) -> FirePlan:
    """Decide all occurrences from the due nominal time up to now. `now_ms` is the store's clock."""
    spec = job.spec
    due_now = now_ms - spread_ms(spec, job.id)
    if _past_deadline(spec, nominal_ms, due_now) and spec.one_shot:
        return FirePlan((), (_expired(job, nominal_ms, nominal_ms, 1),))
    if spec.one_shot:
        return FirePlan((nominal_ms,))
    schedule = schedule_of(job)
    left_out = left_out_from(job, nominal_ms)
    if left_out and left_out[0].nominal_ms == nominal_ms:
        return FirePlan((), (_not_fired(job, left_out[0]),), schedule.next_after(nominal_ms))
    kept = without(schedule, left_out)
    following = kept.next_after(nominal_ms)
    if following is None or following > due_now:
        plan = _cap(_on_time(job, nominal_ms, following, due_now), runs_left)
    else:
        plan = _cap(_catch_up(job, kept, nominal_ms, due_now), runs_left)
    return _with_left_out(job, schedule, plan) if left_out else plan


def apart_from_left_out(job: Job, decision: Decision) -> tuple[Decision, ...]:
    """Return the decision about a range of all its occurrences, with those that are left out decided on their own."""
    left_out = [each for each in left_out_from(job, decision.from_ms) if each.nominal_ms <= decision.to_ms]
    if not left_out:
        return (decision,)
    kept = without(schedule_of(job), left_out)
    decisions: list[Decision] = []
    from_ms = decision.from_ms
    for each in (*left_out, None):
        to_ms = decision.to_ms if each is None else each.nominal_ms - 1
        first, last = kept.next_after(from_ms - 1), kept.last_until(to_ms, from_ms - 1)
        if first is not None and last is not None and first <= last:
            count = kept.count(from_ms - 1, to_ms)
            decisions.append(msgspec.structs.replace(decision, from_ms=first, to_ms=last, count=count))
        if each is not None:
            decisions.append(_not_fired(job, each))
            from_ms = each.nominal_ms + 1
    return tuple(decisions)


def _with_left_out(job: Job, schedule: Schedule, plan: FirePlan) -> FirePlan:
    """Decide the occurrences that are left out between those that a plan decides. The next time may be a left-out one."""
    decided = [*plan.fires, *(decision.to_ms for decision in plan.decisions)]
    if not decided:
        return plan
    decisions = [each for decision in plan.decisions for each in apart_from_left_out(job, decision)]
    known = {each.from_ms for each in decisions if each.outcome in LEFT_OUT}
    first, last = min((*plan.fires, *(decision.from_ms for decision in decisions))), max(decided)
    between = [each for each in left_out_from(job, first) if each.nominal_ms <= last and each.nominal_ms not in known]
    decisions += [_not_fired(job, each) for each in between]
    return FirePlan(plan.fires, tuple(decisions), schedule.next_after(last))


def plan_error(job: Job, nominal_ms: int, now_ms: int, reason: str) -> FirePlan:
    """Return a plan that records the occurrences from the due nominal time up to now as ERROR. The schedule continues."""
    schedule = schedule_of(job)
    due_now = max(nominal_ms, now_ms - spread_ms(job.spec, job.id))
    last = schedule.last_until(due_now, nominal_ms) or nominal_ms
    count = 1 + schedule.count(nominal_ms, due_now)
    decision = Decision(job.id, nominal_ms, last, count, DecisionOutcome.ERROR, reason)
    return FirePlan((), apart_from_left_out(job, decision), schedule.next_after(due_now))


def plan_refused(job_id: JobId, nominal_ms: int, plan: FirePlan | None, reason: str) -> FirePlan:
    """Return a plan for a fire that the store refused: its occurrences become ERROR, and the schedule continues as planned."""
    plan = plan or FirePlan((nominal_ms,))
    times = [*plan.fires, *(time for each in plan.decisions for time in (each.from_ms, each.to_ms))] or [nominal_ms]
    count = len(plan.fires) + sum(each.count for each in plan.decisions)
    text = reason.encode(errors="replace").decode().replace("\x00", "\ufffd")[:500]
    decision = Decision(job_id, min(times), max(times), max(1, count), DecisionOutcome.ERROR, text)
    return FirePlan((), (decision,), plan.next_ms)


def _on_time(job: Job, nominal_ms: int, following: int | None, due_now: int) -> FirePlan:
    if _past_deadline(job.spec, nominal_ms, due_now):
        return FirePlan((), (_expired(job, nominal_ms, nominal_ms, 1),), following)
    if nominal_ms < due_now - MISFIRE_MS and not _made_up(job.spec, nominal_ms, due_now):
        return FirePlan((), (_missed(job, nominal_ms, nominal_ms, 1),), following)
    return FirePlan((nominal_ms,), (), following)


def _catch_up(job: Job, rule: Schedule, nominal_ms: int, due_now: int) -> FirePlan:
    """Plan several occurrences that are due at once. Late ones all fire; of missed ones the policy says which fire."""
    policy = job.spec.catch_up.policy
    oldest_kept = due_now - job.spec.catch_up.window_sec * 1000
    if policy is CatchUpPolicy.NONE:
        oldest_kept = max(oldest_kept, due_now - MISFIRE_MS)
    if policy is CatchUpPolicy.LATEST and nominal_ms < due_now - MISFIRE_MS:
        latest = rule.last_until(due_now, nominal_ms)
        assert latest is not None
        oldest_kept = max(oldest_kept, latest)
    drop = _missed
    if _past_deadline(job.spec, oldest_kept, due_now):
        # All that are dropped are past their deadline then, so EXPIRED is true of each, whether it is also missed or not.
        drop, oldest_kept = _expired, due_now - int((job.spec.start_deadline_sec or 0) * 1000)
    first = nominal_ms if nominal_ms >= oldest_kept else rule.next_after(oldest_kept - 1)
    decisions: tuple[Decision, ...] = ()
    if first != nominal_ms:
        last_dropped = due_now if first is None else min(first - 1, due_now)
        dropped = 1 + rule.count(nominal_ms, last_dropped)
        until = rule.last_until(last_dropped, nominal_ms) or nominal_ms
        decisions = (drop(job, nominal_ms, until, dropped),)
    if first is None or first > due_now:
        return FirePlan((), decisions, first)
    fires = (first, *rule.take(first, FIRES_A_TURN - 1, due_now))
    return FirePlan(fires, decisions, rule.next_after(fires[-1]))


def _cap(plan: FirePlan, runs_left: int | None) -> FirePlan:
    """Limit the fires to the runs left. `maxRuns` counts executions, and an overlap may still skip some of these fires."""
    if runs_left is None or len(plan.fires) <= runs_left:
        return plan
    return FirePlan(plan.fires[:runs_left], plan.decisions, plan.fires[runs_left])


def _made_up(spec: JobSpec, nominal_ms: int, due_now: int) -> bool:
    return spec.catch_up.policy is not CatchUpPolicy.NONE and nominal_ms >= due_now - spec.catch_up.window_sec * 1000


def _past_deadline(spec: JobSpec, nominal_ms: int, due_now: int) -> bool:
    return spec.start_deadline_sec is not None and due_now > nominal_ms + spec.start_deadline_sec * 1000


def _missed(job: Job, from_ms: int, to_ms: int, count: int) -> Decision:
    catch_up = job.spec.catch_up
    reason = f"catch-up {catch_up.policy} within {catch_up.window_sec} s"
    return Decision(job.id, from_ms, to_ms, count, DecisionOutcome.MISSED, reason)


def _not_fired(job: Job, one: LeftOut) -> Decision:
    outcome = DecisionOutcome.MOVED if isinstance(one, Move) else DecisionOutcome.SKIPPED
    return Decision(job.id, one.nominal_ms, one.nominal_ms, 1, outcome, one.text)


def _expired(job: Job, from_ms: int, to_ms: int, count: int) -> Decision:
    reason = f"not started within {job.spec.start_deadline_sec:g} s of its time"
    return Decision(job.id, from_ms, to_ms, count, DecisionOutcome.EXPIRED, reason)


class Start(StrEnum):
    """Decision about the start of a new execution, given the open executions of its job."""

    NOW = "NOW"
    BUFFER = "BUFFER"
    SKIP = "SKIP"


def decide_overlap(policy: Overlap, has_open: bool, has_buffered: bool) -> tuple[Start, bool]:
    """Return whether a new execution starts, waits or is skipped, and whether the open ones are cancelled."""
    if policy is Overlap.ALLOW or not has_open:
        return Start.NOW, False
    if policy is Overlap.SKIP:
        return Start.SKIP, False
    cancel = policy is Overlap.CANCEL_OTHER
    if policy is not Overlap.BUFFER_ALL and has_buffered:
        return Start.SKIP, cancel
    return Start.BUFFER, cancel


def still_wanted(job: Job, nominal_ms: int, cause: Cause) -> bool:
    """Return whether the present definition of a job still has an occurrence that has not started.

    An execution that a person asked for is wanted unless the job is cancelled. Others must be in the job's schedule.
    """
    if job.state is JobState.CANCELLED:
        return False
    if cause is not Cause.SCHEDULE:
        return True
    if job.state is JobState.PAUSED and not job.spec.one_shot:
        return False
    return has(schedule_of(job), nominal_ms)


def may_be_early(spec: JobSpec) -> bool:
    """Return whether a job may be dispatched ahead of its instant.

    Overlaps and concurrency keys are decided at the instant: decided earlier, they would skip runs that do not overlap.
    """
    return spec.overlap is Overlap.ALLOW and spec.concurrency is None


def fire_entry(job: Job, nominal_ms: int, partition: int) -> Entry:
    """Return the timeline row of a job's next fire."""
    spec = job.spec
    return Entry(
        due_ms=nominal_ms + spread_ms(spec, job.id),
        key=job.id,
        kind=Kind.FIRE,
        number=job.revision,
        nominal_ms=nominal_ms,
        partition=partition,
        tenant=job.tenant,
        pool=spec.target.pool,
        lane=LANES.index(spec.priority),
        early=int(may_be_early(spec)),
        recurring=int(not spec.one_shot or spec.start_deadline_sec is not None),
    )


LOOK_UP, LOOK_UP_MOST = 1, 4_096
"""Number of nominal times that `first_unfired` looks up at once, at first and at most."""


def first_unfired(
    rule: Schedule, job_id: JobId, from_ms: int, existing: Callable[[Sequence[ExecutionId]], Collection[ExecutionId]]
) -> int | None:
    """Return the first nominal time at or after `from_ms` that has no execution. `existing` returns which ids exist."""
    after_ms, count = from_ms - 1, LOOK_UP
    while times := list(rule.take(after_ms, count)):
        ids = [execution_id(job_id, time) for time in times]
        fired = existing(ids)
        for time, execution in zip(times, ids, strict=True):
            if execution not in fired:
                return time
        after_ms, count = times[-1], min(4 * count, LOOK_UP_MOST)
    return None


class Fire(msgspec.Struct, frozen=True):
    """A job's fire row on the timeline. While the job has nothing to fire, the row stays without a due time."""

    nominal_ms: int
    """The next nominal time. All earlier occurrences are decided."""
    due_ms: int | None
    runs_left: int | None = None
