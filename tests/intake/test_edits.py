"""Decisions over snapshots. They tile the times: no time is decided twice, and none is omitted."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.intake import edits, triggers
from noonday.model.change import Change
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import RETURN_REASONS, Cause, Execution, State
from noonday.model.firing import Decision, DecisionOutcome, Fire, plan_fire
from noonday.model.ids import execution_id
from noonday.model.job import CatchUp, CatchUpPolicy, Job, JobSpec, JobState, JobType, Overlap, rule_of, spread_ms
from noonday.model.snapshot import Snapshot
from tests.support.factories import HOUR, MINUTE, NOW_MS, SECOND, audit, every, execution, instant, job, job_id, spec

BY = audit()
LATER_MS = NOW_MS + 10 * MINUTE + 30 * SECOND
"""Half a minute after the tenth occurrence of a job that runs each minute."""


def seen(one: Job, fire: Fire | None, *executions: Execution) -> Snapshot:
    return Snapshot(one, fire, executions)


def waiting(one: Job, nominal_ms: int = NOW_MS, runs_left: int | None = None) -> Fire:
    return Fire(nominal_ms, nominal_ms + spread_ms(one.spec, one.id), runs_left)


def paused(definition: JobSpec | None = None) -> Job:
    return job(definition or every(), state=JobState.PAUSED)


def span(decision: Decision) -> tuple[int, int, int, DecisionOutcome]:
    """A decision as from and to in minutes, the count, and the outcome."""
    return (decision.from_ms - NOW_MS) // MINUTE, (decision.to_ms - NOW_MS) // MINUTE, decision.count, decision.outcome


# A new job


def test_a_one_shot_waits_for_its_instant() -> None:
    assert edits.first_fire(job(), NOW_MS) == Fire(NOW_MS, NOW_MS)


def test_a_schedule_waits_for_its_first_time_after_now_with_its_spread_and_runs() -> None:
    one = job(every(60, spread_sec=30, max_runs=3))
    due_ms = NOW_MS + MINUTE + spread_ms(one.spec, one.id)
    assert edits.first_fire(one, NOW_MS) == Fire(NOW_MS + MINUTE, due_ms, 3)


@pytest.mark.parametrize(
    ("definition", "pointer"),
    [
        (every(60, end_at=instant(NOW_MS - HOUR)), "/endAt"),
        (spec(type=JobType.CRON, schedule="0 0 30 2 *"), "/schedule"),
    ],
)
def test_a_schedule_that_would_never_fire_is_refused(definition: JobSpec, pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        edits.first_fire(job(definition), NOW_MS)
    assert caught.value.flaws[0].pointer == pointer


# Replacing


def replaced(before: Snapshot, definition: JobSpec, now_ms: int = NOW_MS) -> Change:
    return edits.replace(before, definition, b"new", now_ms, BY)


def test_replacement_is_the_next_revision_and_keeps_the_identity_of_the_job() -> None:
    one = job(every(), revision=4, created_ms=NOW_MS - HOUR)
    change = replaced(seen(one, waiting(one, NOW_MS + MINUTE)), every(30, name="new"), NOW_MS + 1)
    assert change.job == msgspec.structs.replace(
        one, spec=every(30, name="new"), payload=b"new", revision=5, anchor_ms=NOW_MS + 1, updated_ms=NOW_MS + 1
    )
    assert change.audit == BY


def test_a_new_rule_counts_from_now() -> None:
    one = job(every())
    change = replaced(seen(one, waiting(one, NOW_MS + MINUTE)), every(45), NOW_MS + 1)
    assert change.fire == Fire(NOW_MS + 45 * SECOND, NOW_MS + 45 * SECOND)
    assert change.decisions == ()


def test_a_time_that_was_fired_ahead_is_not_fired_again() -> None:
    one = job(every())
    ahead = execution(one, NOW_MS + MINUTE)
    change = replaced(seen(one, waiting(one, NOW_MS + 2 * MINUTE), ahead), every(), NOW_MS + MINUTE - 100)
    assert change.fire == Fire(NOW_MS + 2 * MINUTE, NOW_MS + 2 * MINUTE)
    assert change.cancel == ((ahead.id, "EDITED"),)


def test_an_overdue_time_that_the_new_rule_has_too_stays() -> None:
    one = job(every())
    change = replaced(seen(one, waiting(one)), every(30), LATER_MS)
    assert change.fire == Fire(NOW_MS, NOW_MS)
    assert change.decisions == ()


def test_overdue_times_that_the_new_rule_does_not_have_are_given_up() -> None:
    one = job(every())
    change = replaced(seen(one, waiting(one)), every(60, phase_sec=7), LATER_MS)
    assert [span(d) for d in change.decisions] == [(0, 10, 11, DecisionOutcome.EDITED)]
    assert change.fire is not None
    assert change.fire.nominal_ms == NOW_MS + 11 * MINUTE + 7 * SECOND


def test_paused_job_stays_paused_and_decides_the_skipped_range() -> None:
    change = replaced(seen(paused(), Fire(NOW_MS, None)), every(), LATER_MS)
    assert change.job is not None
    assert change.job.state is JobState.PAUSED
    assert [span(d) for d in change.decisions] == [(0, 10, 11, DecisionOutcome.PAUSED)]
    assert change.fire == Fire(NOW_MS + 11 * MINUTE, None)


def test_paused_job_that_catches_up_keeps_its_next_time() -> None:
    definition = every(catch_up=CatchUp(while_paused=True))
    change = replaced(seen(paused(definition), Fire(NOW_MS, None)), definition, LATER_MS)
    assert (change.fire, change.decisions) == (Fire(NOW_MS, None), ())


def test_a_finished_one_shot_gets_a_new_time() -> None:
    one = job()
    change = replaced(seen(one, None), spec(run_at=instant(NOW_MS + HOUR)), NOW_MS + MINUTE)
    assert change.fire == Fire(NOW_MS + HOUR, NOW_MS + HOUR)


def test_a_one_shot_that_has_fired_for_the_same_instant_does_not_fire_again() -> None:
    one = job(spec(run_at=instant(NOW_MS)))
    running = execution(one, state=State.RUNNING)
    change = replaced(seen(one, None, running), spec(run_at=instant(NOW_MS)), NOW_MS + SECOND)
    assert change.fire is not None
    assert change.fire.due_ms is None
    assert change.cancel == ()


def test_an_overdue_one_shot_that_moves_is_given_up_for_its_old_time() -> None:
    one = job()
    change = replaced(seen(one, waiting(one)), spec(run_at=instant(NOW_MS + HOUR)), NOW_MS + SECOND)
    assert [span(d) for d in change.decisions] == [(0, 0, 1, DecisionOutcome.EDITED)]
    assert change.fire == Fire(NOW_MS + HOUR, NOW_MS + HOUR)


def test_a_schedule_that_ended_begins_again_with_its_new_rule() -> None:
    one = job(every(end_at=instant(NOW_MS)))
    change = replaced(seen(one, Fire(NOW_MS + 1, None)), every(), NOW_MS + 5)
    assert change.fire == Fire(NOW_MS + MINUTE, NOW_MS + MINUTE)
    assert change.decisions == ()


def test_a_rule_without_a_time_to_come_keeps_a_row_without_one() -> None:
    one = job(every())
    change = replaced(seen(one, waiting(one, NOW_MS + MINUTE)), every(end_at=instant(NOW_MS - HOUR)))
    assert change.fire is not None
    assert change.fire.due_ms is None


@pytest.mark.parametrize(
    ("old", "left", "new", "expected"),
    [(None, None, 5, 5), (5, 2, None, None), (5, 2, 5, 2), (5, 2, 9, 6), (5, 2, 3, 0), (5, 2, 1, 0), (5, 0, 6, 1)],
)
def test_max_runs_counts_on(old: int | None, left: int | None, new: int | None, expected: int | None) -> None:
    one = job(every(max_runs=old))
    fire = Fire(NOW_MS + MINUTE, NOW_MS + MINUTE if left != 0 else None, left)
    change = replaced(seen(one, fire), every(max_runs=new), NOW_MS + 1)
    assert change.fire is not None
    assert change.fire.runs_left == expected
    assert (change.fire.due_ms is None) == (expected == 0)


def test_only_executions_that_have_not_started_are_revoked() -> None:
    one = job(every())
    dispatched = execution(one, NOW_MS)
    running = execution(one, NOW_MS - MINUTE, state=State.RUNNING)
    retry = execution(one, NOW_MS - 2 * MINUTE, fired_ms=None, started_ms=NOW_MS, waits_until_ms=NOW_MS, dispatch=2)
    revoked = execution(one, NOW_MS - 3 * MINUTE, revocation="cancelled by ann")
    ended = execution(one, NOW_MS - 4 * MINUTE, state=State.SUCCEEDED)
    change = replaced(seen(one, waiting(one, NOW_MS + MINUTE), ended, revoked, retry, running, dispatched), every())
    assert change.cancel == ((dispatched.id, "EDITED"),)
    assert change.rebase == ()


def test_waiting_executions_run_under_the_new_definition_or_end() -> None:
    one = job(every())
    unstarted = {"fired_ms": None, "started_ms": None}
    triggered = execution(one, NOW_MS + 5, cause=Cause.TRIGGER, waits_until_ms=NOW_MS + 5, **unstarted)
    kept = execution(one, NOW_MS, buffered=1, **unstarted)
    dropped = execution(one, NOW_MS - MINUTE, buffered=1, **unstarted)
    snapshot = seen(one, waiting(one, NOW_MS + MINUTE), dropped, kept, triggered)
    change = replaced(snapshot, every(120, overlap=Overlap.BUFFER_ALL), NOW_MS + 10)
    assert set(change.rebase) == {triggered.id, kept.id}
    assert change.cancel == ((dropped.id, "EDITED"),)


# Create or update


def test_an_upsert_that_changes_nothing_is_nothing() -> None:
    one = job(every(unique_key="k"))
    wanted = msgspec.structs.replace(one, id=job_id())
    assert edits.upsert(seen(one, waiting(one)), wanted, lambda a, b: a == b, NOW_MS, BY) == Change()


@pytest.mark.parametrize("change", [{"payload": b"new"}, {"spec": every(30, unique_key="k")}])
def test_upsert_replaces_a_different_definition_and_keeps_a_pause(change: dict[str, object]) -> None:
    one = job(every(unique_key="k"), state=JobState.PAUSED)
    wanted = msgspec.structs.replace(one, id=job_id(), state=JobState.ACTIVE, **change)
    made = edits.upsert(seen(one, Fire(NOW_MS + MINUTE, None)), wanted, lambda a, b: a == b, NOW_MS, BY)
    assert made.job is not None
    assert (made.job.id, made.job.revision, made.job.state) == (one.id, 2, JobState.PAUSED)
    assert made.fire is not None
    assert made.fire.due_ms is None


def over(one: Job) -> Snapshot:
    return seen(one, None, execution(one, one.anchor_ms, state=State.SUCCEEDED))


def upserted(before: Snapshot, wanted: Job) -> Change:
    return edits.upsert(before, wanted, lambda a, b: a == b, LATER_MS, BY)


def test_one_shot_that_is_over_does_not_run_again_under_its_key() -> None:
    definition = spec(type=JobType.DELAYED, delay_sec=5, unique_key="k")
    one = job(definition)
    assert upserted(over(one), job(definition, now_ms=LATER_MS)) == Change()


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING])
def test_a_one_shot_that_is_open_is_not_run_a_second_time(state: State) -> None:
    definition = spec(unique_key="k")
    one = job(definition)
    assert upserted(seen(one, None, execution(one, state=state)), job(definition, now_ms=LATER_MS)) == Change()


def test_a_one_shot_that_has_fired_at_this_instant_is_not_changed() -> None:
    definition = spec(run_at=instant(NOW_MS), unique_key="k")
    one = job(definition)
    assert upserted(over(one), job(definition)) == Change()
    with pytest.raises(Conflict, match="set a later runAt"):
        upserted(over(one), job(definition, payload=b"new"))
    later = upserted(over(one), job(spec(run_at=instant(LATER_MS), unique_key="k")))
    assert later.fire == Fire(LATER_MS, LATER_MS)


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (seen(job(), waiting(job())), None),
        (seen(job(), None), "COMPLETED: it has no future time"),
        (seen(job(), None, execution()), "has fired"),
        (seen(paused(), Fire(NOW_MS, None)), "PAUSED"),
        (seen(job(every(max_runs=2)), Fire(NOW_MS, None, 0)), "maxRuns of 2 are used up"),
    ],
)
def test_job_that_never_fires_is_refused_with_the_reason(after: Snapshot, reason: str | None) -> None:
    found = edits.why_no_next_fire(after)
    assert found is None if reason is None else reason in (found or "")


def test_a_replacement_returns_runs_that_it_gives_up_before_they_start() -> None:
    one = job(every(max_runs=2))
    back = execution(one, NOW_MS, fired_ms=None)
    change = replaced(seen(one, Fire(NOW_MS + MINUTE, None, 0), back), every(phase_sec=30, max_runs=2), NOW_MS + 1)
    assert change.cancel == ((back.id, "EDITED"),)
    assert change.fire is not None
    assert change.fire.runs_left == 1
    assert change.fire.due_ms is not None


# Pausing and resuming


def test_pause_removes_the_time_and_revokes_early_dispatches() -> None:
    one = job(every())
    early, running = execution(one), execution(one, NOW_MS - MINUTE, state=State.RUNNING)
    retry = execution(one, NOW_MS - 2 * MINUTE, fired_ms=None, waits_until_ms=NOW_MS + HOUR, dispatch=2)
    behind = execution(one, NOW_MS - 3 * MINUTE, fired_ms=None, buffered=1)
    change = edits.pause(seen(one, waiting(one, NOW_MS + MINUTE, 4), behind, retry, running, early), NOW_MS + 1, BY)
    assert change.job == msgspec.structs.replace(one, state=JobState.PAUSED, updated_ms=NOW_MS + 1)
    assert change.fire == Fire(NOW_MS + MINUTE, None, 4)
    assert change.cancel == ((running.id, "PAUSED"), (early.id, "PAUSED"))
    assert change.suspend == (retry.id,)
    assert change.decisions == ()


def test_pausing_twice_is_pausing() -> None:
    assert edits.pause(seen(paused(), Fire(NOW_MS, None)), NOW_MS, BY) == Change()


def test_completed_job_cannot_be_paused() -> None:
    with pytest.raises(Conflict, match="COMPLETED"):
        edits.pause(seen(job(), None), NOW_MS, BY)
    with pytest.raises(Conflict, match="COMPLETED"):
        edits.pause(seen(job(every()), Fire(NOW_MS, None, 0)), NOW_MS, BY)


def test_halt_is_a_pause_with_a_reason() -> None:
    one = job(every())
    before = seen(one, waiting(one, NOW_MS + MINUTE), execution(one))
    halted, pausing = edits.halt(before, "gone", NOW_MS + 1, BY), edits.pause(before, NOW_MS + 1, BY)
    assert pausing.job is not None
    assert halted == msgspec.structs.replace(pausing, job=msgspec.structs.replace(pausing.job, halted="gone"))


def test_paused_job_that_is_halted_has_the_reason() -> None:
    one = paused()
    change = edits.halt(seen(one, Fire(NOW_MS, None)), "gone", NOW_MS + 1, BY)
    assert change == Change(job=msgspec.structs.replace(one, halted="gone", updated_ms=NOW_MS + 1), audit=BY)


@pytest.mark.parametrize(
    "over",
    [
        seen(job(), None),
        seen(job(every(), state=JobState.CANCELLED), Fire(NOW_MS, None)),
        seen(job(every(), state=JobState.PAUSED, halted="before"), Fire(NOW_MS, None)),
    ],
    ids=["completed", "cancelled", "halted"],
)
def test_completed_or_halted_job_is_not_halted(over: Snapshot) -> None:
    assert edits.halt(over, "gone", NOW_MS, BY) == Change()


def test_a_resumed_job_forgets_what_halted_it() -> None:
    one = job(every(), state=JobState.PAUSED, halted="gone")
    change = edits.resume(seen(one, Fire(NOW_MS + MINUTE, None)), NOW_MS + 1, BY)
    assert change.job == msgspec.structs.replace(one, state=JobState.ACTIVE, halted=None, updated_ms=NOW_MS + 1)


def test_a_halted_job_that_is_replaced_stays_halted() -> None:
    one = job(every(), state=JobState.PAUSED, halted="gone")
    change = replaced(seen(one, Fire(NOW_MS + MINUTE, None)), every(30))
    assert change.job is not None
    assert change.job.halted == "gone"


def test_resumed_job_catches_up_nothing_and_decides_the_skipped_range() -> None:
    change = edits.resume(seen(paused(), Fire(NOW_MS, None, 4)), LATER_MS, BY)
    assert change.job is not None
    assert change.job.state is JobState.ACTIVE
    assert [span(d) for d in change.decisions] == [(0, 10, 11, DecisionOutcome.PAUSED)]
    assert change.fire == Fire(NOW_MS + 11 * MINUTE, NOW_MS + 11 * MINUTE, 4)


def test_a_job_resumed_before_its_time_has_missed_nothing() -> None:
    change = edits.resume(seen(paused(), Fire(NOW_MS + MINUTE, None)), NOW_MS, BY)
    assert (change.fire, change.decisions) == (Fire(NOW_MS + MINUTE, NOW_MS + MINUTE), ())


def test_job_that_catches_up_a_pause_is_due_for_its_missed_times() -> None:
    definition = every(catch_up=CatchUp(CatchUpPolicy.ALL, while_paused=True), spread_sec=10)
    one = paused(definition)
    change = edits.resume(seen(one, Fire(NOW_MS, None)), LATER_MS, BY)
    assert (change.fire, change.decisions) == (waiting(one), ())


def test_a_resumed_one_shot_fires() -> None:
    change = edits.resume(seen(paused(spec()), Fire(NOW_MS, None)), LATER_MS, BY)
    assert (change.fire, change.decisions) == (Fire(NOW_MS, NOW_MS), ())


def test_a_one_shot_that_has_fired_does_not_fire_again_when_it_is_resumed() -> None:
    one = paused(spec(start_deadline_sec=60))
    running = execution(one, state=State.RUNNING)
    spent = Fire(NOW_MS + 1, None)
    change = edits.resume(seen(one, spent, running), LATER_MS, BY)
    assert (change.fire, change.decisions) == (spent, ())


@pytest.mark.parametrize(
    ("definition", "spent"),
    [
        (every(max_runs=2), Fire(NOW_MS + 1, None, 0)),
        (every(end_at=instant(NOW_MS)), Fire(NOW_MS + 1, None)),
    ],
    ids=["max runs", "end"],
)
@pytest.mark.parametrize("at_ms", [NOW_MS - 100, LATER_MS], ids=["early ahead", "long ago"])
def test_a_schedule_that_ended_does_not_begin_again_when_it_is_resumed(
    definition: JobSpec, spent: Fire, at_ms: int
) -> None:
    one = paused(definition)
    change = edits.resume(seen(one, spent, execution(one, state=State.RUNNING)), at_ms, BY)
    assert (change.fire, change.decisions) == (spent, ())


def test_a_schedule_that_has_no_time_left_after_a_pause_is_over() -> None:
    one = paused(every(end_at=instant(NOW_MS + 5 * MINUTE)))
    change = edits.resume(seen(one, Fire(NOW_MS, None)), LATER_MS, BY)
    assert [span(d) for d in change.decisions] == [(0, 5, 6, DecisionOutcome.PAUSED)]
    assert change.fire is not None
    assert change.fire.due_ms is None


def test_suspended_execution_is_released_but_never_before_its_instant() -> None:
    one = paused(spec())
    held = {"fired_ms": None, "waits_until_ms": None}
    late = execution(one, NOW_MS - HOUR, **held)
    early = execution(one, NOW_MS + 200, **held)
    waits = execution(one, NOW_MS - MINUTE, fired_ms=None, waits_until_ms=NOW_MS + HOUR)
    behind = execution(one, NOW_MS - SECOND, buffered=1, **held)
    retry = execution(one, NOW_MS - 2 * MINUTE, suspended_until_ms=NOW_MS + 300, dispatch=2, **held)
    change = edits.resume(seen(one, None, late, retry, waits, behind, early), NOW_MS + 1, BY)
    assert change.release == ((late.id, NOW_MS + 1), (retry.id, NOW_MS + 300), (early.id, NOW_MS + 200))


def test_resuming_an_active_job_changes_nothing() -> None:
    assert edits.resume(seen(job(), waiting(job())), NOW_MS, BY) == Change()


# Deleting


def test_deleted_job_waits_for_nothing_and_gives_up_overdue_times() -> None:
    one = job(every())
    change = edits.delete(seen(one, waiting(one, runs_left=9)), LATER_MS, BY)
    assert change.job == msgspec.structs.replace(one, state=JobState.CANCELLED, updated_ms=LATER_MS)
    assert change.fire is not None
    assert change.fire.due_ms is None
    assert [span(d) for d in change.decisions] == [(0, 10, 11, DecisionOutcome.CANCELLED)]


def test_a_job_deleted_before_its_time_gives_up_nothing() -> None:
    one = job(every())
    assert edits.delete(seen(one, waiting(one, NOW_MS + MINUTE)), NOW_MS, BY).decisions == ()


def test_job_deleted_while_paused_decides_the_skipped_range() -> None:
    change = edits.delete(seen(paused(), Fire(NOW_MS, None)), LATER_MS, BY)
    assert [span(d) for d in change.decisions] == [(0, 10, 11, DecisionOutcome.PAUSED)]


def test_a_one_shot_deleted_while_it_was_paused_was_cancelled() -> None:
    change = edits.delete(seen(paused(spec()), Fire(NOW_MS, None)), LATER_MS, BY)
    assert [span(d) for d in change.decisions] == [(0, 0, 1, DecisionOutcome.CANCELLED)]


def test_a_schedule_that_had_ended_gives_up_nothing_when_it_is_deleted() -> None:
    assert edits.delete(seen(job(every(max_runs=1)), Fire(NOW_MS + 1, None, 0)), LATER_MS, BY).decisions == ()


def test_nothing_of_a_deleted_job_starts() -> None:
    one = job(every())
    early = execution(one)
    edited = execution(one, NOW_MS - MINUTE, revocation="EDITED")
    retry = execution(one, NOW_MS - 2 * MINUTE, fired_ms=None, waits_until_ms=NOW_MS + HOUR)
    revoked = execution(one, NOW_MS - 3 * MINUTE, revocation="cancelled by ann")
    ended = execution(one, NOW_MS - 4 * MINUTE, state=State.DEAD)
    change = edits.delete(seen(one, waiting(one, NOW_MS + MINUTE), ended, revoked, retry, edited, early), NOW_MS, BY)
    asked = dict(change.cancel)
    assert {retry.id, edited.id, early.id} <= set(asked)
    assert not {ended.id} & set(asked)
    assert not RETURN_REASONS & set(asked.values())


def test_deleting_twice_is_deleting() -> None:
    assert edits.delete(seen(job(state=JobState.CANCELLED), None), NOW_MS, BY) == Change()


GONE = seen(job(every(), state=JobState.CANCELLED), Fire(NOW_MS, None))


@pytest.mark.parametrize(
    "edit",
    [
        lambda: edits.replace(GONE, every(), None, NOW_MS, BY),
        lambda: edits.pause(GONE, NOW_MS, BY),
        lambda: edits.resume(GONE, NOW_MS, BY),
        lambda: triggers.trigger(GONE, "k", NOW_MS, BY),
        lambda: edits.backfill(GONE, [NOW_MS], "b", NOW_MS, BY),
        lambda: edits.retry_dead(GONE, execution(GONE.job, state=State.DEAD), NOW_MS, BY),
    ],
    ids=["replace", "pause", "resume", "trigger", "backfill", "retry"],
)
def test_a_deleted_job_stays_deleted(edit: object) -> None:
    with pytest.raises(Conflict, match="cancelled"):
        edit()  # type: ignore[operator]


# Triggers


def test_a_trigger_runs_now_besides_the_schedule() -> None:
    one = job(every())
    change = triggers.trigger(seen(one, waiting(one, NOW_MS + MINUTE)), "key", NOW_MS + 5, BY)
    (made,) = change.executions
    assert (made.nominal_ms, made.due_ms, made.cause, made.buffered) == (NOW_MS + 5, NOW_MS + 5, Cause.TRIGGER, False)
    assert (change.job, change.fire, change.cancel) == (None, None, ())


def test_the_same_key_at_the_same_time_is_the_same_trigger() -> None:
    before = seen(job(every()), None)
    made = [triggers.trigger(before, key, NOW_MS, BY).executions[0].id for key in ("a", "a", "b")]
    assert made[0] == made[1] != made[2]
    assert execution_id(before.job.id, NOW_MS) not in made


@pytest.mark.parametrize(
    ("overlap", "buffered", "cancels"),
    [(Overlap.ALLOW, False, False), (Overlap.BUFFER_ONE, True, False), (Overlap.CANCEL_OTHER, True, True)],
)
def test_a_trigger_heeds_the_overlap_of_its_job(overlap: Overlap, buffered: bool, cancels: bool) -> None:
    one = job(every(overlap=overlap))
    running = execution(one, state=State.RUNNING)
    change = triggers.trigger(seen(one, None, running), "key", NOW_MS, BY)
    assert change.executions[0].buffered is buffered
    assert [name for name, _ in change.cancel] == ([running.id] if cancels else [])


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.CANCEL_OTHER])
def test_a_trigger_that_would_be_skipped_is_refused(overlap: Overlap) -> None:
    one = job(every(overlap=overlap))
    running = execution(one, state=State.RUNNING)
    behind = execution(one, NOW_MS + MINUTE, fired_ms=None, buffered=1)
    with pytest.raises(Conflict, match=overlap):
        triggers.trigger(seen(one, None, running, behind), "key", NOW_MS, BY)


# Backfills


TIMES = [NOW_MS - 3 * HOUR, NOW_MS - 2 * HOUR, NOW_MS - HOUR]


def filled(one: Job, *executions: Execution, times: list[int] = TIMES) -> Change:
    return edits.backfill(seen(one, None, *executions), times, "fill-1", NOW_MS, BY)


def test_a_backfill_makes_an_execution_for_each_time_besides_the_real_ones() -> None:
    one = job(every())
    made = filled(one).executions
    assert [(each.nominal_ms, each.due_ms, each.cause) for each in made] == [
        (time, NOW_MS, Cause.BACKFILL) for time in TIMES
    ]
    assert not {each.id for each in made} & {execution_id(one.id, time) for time in TIMES}
    assert not any(each.buffered for each in made)


def test_the_same_backfill_makes_the_same_executions_and_another_makes_others() -> None:
    one = job(every())
    again, other = filled(one), edits.backfill(seen(one, None), TIMES, "fill-2", NOW_MS, BY)
    assert filled(one) == again
    assert not {each.id for each in again.executions} & {each.id for each in other.executions}


@pytest.mark.parametrize("overlap", [policy for policy in Overlap if policy is not Overlap.ALLOW])
def test_a_backfill_of_a_job_that_minds_overlap_goes_one_by_one(overlap: Overlap) -> None:
    one = job(every(overlap=overlap))
    assert [each.buffered for each in filled(one).executions] == [False, True, True]
    assert all(each.buffered for each in filled(one, execution(one, state=State.RUNNING)).executions)


def test_repeated_backfill_creates_and_starts_the_missing_executions() -> None:
    one = job(every(overlap=Overlap.SKIP))
    first, *missing = filled(one).executions
    done = execution(one, TIMES[0], id=first.id, cause=Cause.BACKFILL, state=State.SUCCEEDED)
    made = filled(one, done).executions
    assert [each.id for each in made] == [each.id for each in missing]
    assert [each.buffered for each in made] == [False, True]


# Single executions


def test_an_open_execution_can_be_cancelled() -> None:
    for state in (State.PENDING, State.RUNNING):
        one = execution(state=state)
        change = edits.cancel_execution(seen(job(), None, one), one.id, "by ann", BY)
        assert (change.cancel, change.audit) == (((one.id, "by ann"),), BY)


def test_an_execution_that_ended_cannot_be_cancelled() -> None:
    one = execution(state=State.SUCCEEDED)
    with pytest.raises(Conflict, match="SUCCEEDED"):
        edits.cancel_execution(seen(job(), None, one), one.id, "by ann", BY)
    with pytest.raises(Conflict):
        edits.cancel_execution(seen(job(), None), one.id, "by ann", BY)


def test_a_dead_letter_is_tried_again_as_a_new_execution_of_the_same_occurrence() -> None:
    one = job(every())
    dead = execution(one, NOW_MS - HOUR, state=State.DEAD)
    change = edits.retry_dead(seen(one, None, dead), dead, NOW_MS, BY)
    (made,) = change.executions
    assert (made.nominal_ms, made.due_ms, made.cause, made.retry_of) == (
        dead.nominal_ms,
        NOW_MS,
        Cause.RETRY_OF,
        dead.id,
    )
    assert made.id != dead.id
    assert change.dead == ((dead.id, made.id),)
    assert not made.buffered


def test_dead_letter_tried_again_waits_for_open_executions() -> None:
    one = job(every(overlap=Overlap.SKIP))
    dead, running = execution(one, NOW_MS - HOUR, state=State.DEAD), execution(one, state=State.RUNNING)
    assert edits.retry_dead(seen(one, None, dead, running), dead, NOW_MS, BY).executions[0].buffered


def test_an_archived_dead_letter_is_dealt_with() -> None:
    dead = execution(state=State.DEAD)
    assert edits.archive_dead(dead.id, BY) == Change(dead=((dead.id, None),), audit=BY)


# Random histories


class JobHistory:
    """A job as the store would have it, under edits and fires."""

    def __init__(self, definition: JobSpec) -> None:
        self.job = job(definition)
        self.fire: Fire | None = edits.first_fire(self.job, NOW_MS)
        self.now_ms = NOW_MS
        self.fired: list[int] = []
        self.ranges: list[tuple[int, int]] = []
        self.plans: list[tuple[int, Job]] = [(NOW_MS + 1, self.job)]
        """The definitions, each with the time from which it was in force."""

    def snapshot(self) -> Snapshot:
        """All executions have ended, so none is revoked."""
        executions = (execution(self.job, time, state=State.SUCCEEDED) for time in self.fired)
        return Snapshot(self.job, self.fire, tuple(executions))

    def apply(self, change: Change) -> None:
        if change.job:
            if change.job.revision != self.job.revision and change.fire:
                # A replacement that keeps an overdue time is in force from that time on.
                self.plans.append((min(change.job.updated_ms + 1, change.fire.nominal_ms), change.job))
            self.job = change.job
        self.fire = change.fire or self.fire
        self.ranges += [(d.from_ms, d.to_ms) for d in change.decisions]

    def work(self) -> None:
        """Fire until nothing is due."""
        while self.fire and self.fire.due_ms is not None and self.fire.due_ms <= self.now_ms:
            plan = plan_fire(self.job, self.fire.nominal_ms, self.now_ms, self.fire.runs_left)
            self.fired += plan.fires
            self.ranges += [(d.from_ms, d.to_ms) for d in plan.decisions]
            left = None if self.fire.runs_left is None else self.fire.runs_left - len(plan.fires)
            if plan.next_ms is None or left == 0:
                decided = max([*plan.fires, *(d.to_ms for d in plan.decisions)])
                self.fire = Fire(decided + 1, None, left)
            else:
                self.fire = Fire(plan.next_ms, plan.next_ms + spread_ms(self.job.spec, self.job.id), left)


SPECS = [
    every(60),
    every(60, phase_sec=7),
    every(90),
    every(60, catch_up=CatchUp(CatchUpPolicy.ALL, 600)),
    every(60, catch_up=CatchUp(CatchUpPolicy.NONE)),
    every(60, catch_up=CatchUp(while_paused=True)),
]
steps = st.lists(
    st.tuples(
        st.sampled_from(["pause", "resume", "replace", "work", "work", "sleep"]),
        st.integers(0, 5 * MINUTE) | st.sampled_from([0, MINUTE, 90 * SECOND]),
        st.sampled_from(SPECS),
    ),
    max_size=15,
)


def play(definition: JobSpec, todo: list[tuple[str, int, JobSpec]]) -> JobHistory:
    history = JobHistory(definition)
    for what, later_ms, new in todo:
        history.now_ms += later_ms
        if what == "work":
            history.work()
        elif what == "replace":
            history.apply(edits.replace(history.snapshot(), new, None, history.now_ms, BY))
        elif what != "sleep":
            history.apply(getattr(edits, what)(history.snapshot(), history.now_ms, BY))
    history.now_ms += 10 * MINUTE
    history.apply(edits.resume(history.snapshot(), history.now_ms, BY))
    history.work()
    return history


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SPECS), steps)
def test_no_time_is_decided_twice_in_random_histories(
    definition: JobSpec, todo: list[tuple[str, int, JobSpec]]
) -> None:
    history = play(definition, todo)
    decided = sorted([*((time, time) for time in history.fired), *history.ranges])
    assert all(a[1] < b[0] for a, b in pairwise(decided))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SPECS), steps)
def test_every_time_of_the_plan_in_force_is_decided_in_random_histories(
    definition: JobSpec, todo: list[tuple[str, int, JobSpec]]
) -> None:
    history = play(definition, todo)
    decided = [*((time, time) for time in history.fired), *history.ranges]
    for (from_ms, one), (until_ms, _) in pairwise([*history.plans, (history.now_ms + 1, history.job)]):
        rule = rule_of(one.spec, one.anchor_ms)
        for time in rule.take(from_ms - 1, rule.count(from_ms - 1, until_ms - 1)):
            assert sum(first <= time <= last for first, last in decided) == 1


def test_an_edit_in_the_millisecond_of_another_comes_after_it() -> None:
    one = job(every(), updated_ms=NOW_MS + 3)
    for now_ms, moment in [
        (NOW_MS + 3, NOW_MS + 4),
        (NOW_MS + 2, NOW_MS + 4),
        (NOW_MS + 4, NOW_MS + 4),
        (NOW_MS - HOUR, NOW_MS - HOUR),
    ]:
        change = edits.pause(seen(one, waiting(one, NOW_MS + MINUTE)), now_ms, BY)
        assert change.job is not None
        assert change.job.updated_ms == moment


def test_edits_in_the_millisecond_of_a_due_time_decide_it_once() -> None:
    minutely = every(60)
    todo = [(what, 0, minutely) for what in ("pause", "replace", "resume", "replace")]
    history = play(minutely, [("sleep", MINUTE, minutely), *todo])
    decided = sorted([*((time, time) for time in history.fired), *history.ranges])
    assert all(a[1] < b[0] for a, b in pairwise(decided))
