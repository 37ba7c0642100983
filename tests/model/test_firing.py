"""The plan of a due point, compared with an oracle that examines each occurrence on its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model.execution import Cause
from noonday.model.firing import (
    FIRES_A_TURN,
    MISFIRE_MS,
    Decision,
    DecisionOutcome,
    FirePlan,
    Kind,
    Start,
    decide_overlap,
    fire_entry,
    first_unfired,
    may_be_early,
    plan_fire,
    still_wanted,
)
from noonday.model.ids import ExecutionId, JobId, execution_id
from noonday.model.job import (
    CatchUp,
    CatchUpPolicy,
    Concurrency,
    Job,
    JobSpec,
    JobState,
    JobType,
    Overlap,
    Priority,
    rule_of,
    spread_ms,
)
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, SECOND, every, instant, job, spec

ALL, LATEST, NONE = CatchUpPolicy.ALL, CatchUpPolicy.LATEST, CatchUpPolicy.NONE


@dataclass
class Decisions:
    """All decisions turn by turn, until nothing is due any more."""

    fires: list[int]
    decisions: list[Decision]
    next_ms: int | None
    runs_left: int | None


def decide_all(one: Job, nominal_ms: int, now_ms: int, runs_left: int | None) -> Decisions:
    seen = Decisions([], [], nominal_ms, runs_left)
    due_now = now_ms - spread_ms(one.spec, one.id)
    while seen.next_ms is not None and seen.runs_left != 0 and (seen.next_ms <= due_now or seen.next_ms == nominal_ms):
        plan = plan_fire(one, seen.next_ms, now_ms, seen.runs_left)
        assert len(plan.fires) <= FIRES_A_TURN
        assert plan.next_ms is None or plan.next_ms > seen.next_ms
        seen.fires += plan.fires
        seen.decisions += plan.decisions
        seen.next_ms = plan.next_ms
        if seen.runs_left is not None:
            seen.runs_left -= len(plan.fires)
    return seen


def due_times(one: Job, nominal_ms: int, now_ms: int) -> list[int]:
    """Every occurrence from the next time up to now, found one by one."""
    rule, due_now = rule_of(one.spec, one.anchor_ms), now_ms - spread_ms(one.spec, one.id)
    times = [nominal_ms]
    while (time := rule.next_after(times[-1])) is not None and time <= due_now:
        times.append(time)
    return times


def is_kept(one: Job, time: int, times: list[int], now_ms: int) -> bool:
    """The oracle: whether an occurrence fires."""
    definition, late_ms = one.spec, now_ms - spread_ms(one.spec, one.id) - time
    if definition.start_deadline_sec is not None and late_ms > definition.start_deadline_sec * 1000:
        return False
    if definition.catch_up.policy is LATEST and is_missed(one, times[0], now_ms) and time != times[-1]:
        return False
    if not is_missed(one, time, now_ms):
        return True
    return definition.catch_up.policy is not NONE and late_ms <= definition.catch_up.window_sec * 1000


def is_missed(one: Job, time: int, now_ms: int) -> bool:
    return now_ms - spread_ms(one.spec, one.id) - time > MISFIRE_MS


policies = st.builds(CatchUp, policy=st.sampled_from(CatchUpPolicy), window_sec=st.integers(10, 600) | st.just(86_400))
intervals = st.builds(
    every,
    st.integers(1, 400) | st.sampled_from([1.5, 3600]),
    phase_sec=st.integers(0, 59),
    catch_up=policies,
    start_deadline_sec=st.none() | st.integers(0, 600) | st.just(0.25),
    spread_sec=st.sampled_from([0, 0, 5, 120]),
    end_at=st.none() | st.integers(0, 1200).map(lambda late: instant(NOW_MS + late * SECOND)),
)
crons = st.builds(
    spec,
    type=st.just(JobType.CRON),
    schedule=st.sampled_from(["* * * * *", "30 2 * * *", "*/5 1-3 * * *", "0 */2 * * *"]),
    timezone=st.sampled_from(["UTC", "America/New_York"]),
    catch_up=policies,
    start_deadline_sec=st.none() | st.integers(0, 600),
)
CHANGES = (1_899_331_200_000, 1_919_894_400_000)
"""The days before the clocks change in New York: 2030-03-10 and 2030-11-03."""
lateness = st.integers(-300, 1200 * SECOND) | st.sampled_from([0, MISFIRE_MS, MISFIRE_MS + 1, 3 * HOUR])
runs = st.none() | st.integers(1, 300)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(definition=intervals, late_ms=lateness, runs_left=runs)
def test_fires_of_an_interval_agree_with_the_oracle(definition: JobSpec, late_ms: int, runs_left: int | None) -> None:
    check_against_oracle(definition, late_ms, runs_left)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    definition=crons,
    late_ms=lateness | st.integers(0, 3 * DAY),
    runs_left=runs,
    from_ms=st.sampled_from([NOW_MS, *CHANGES]),
)
def test_fires_of_a_cron_agree_with_the_oracle(
    definition: JobSpec, late_ms: int, runs_left: int | None, from_ms: int
) -> None:
    check_against_oracle(definition, late_ms, runs_left, from_ms)


def check_against_oracle(
    definition: JobSpec, late_ms: int, runs_left: int | None, from_ms: int = NOW_MS - HOUR
) -> None:
    one = job(definition, id=JobId("01900000-0000-7000-8000-000000000001"))
    nominal_ms = rule_of(definition, one.anchor_ms).next_after(from_ms)
    if nominal_ms is None:
        return
    now_ms = nominal_ms + spread_ms(definition, one.id) + late_ms
    times = due_times(one, nominal_ms, now_ms)
    seen = decide_all(one, nominal_ms, now_ms, runs_left)
    kept = [time for time in times if is_kept(one, time, times, now_ms)]
    assert seen.fires == kept[:runs_left]
    check_tiling(one, seen, times)
    check_reasons(one, seen, now_ms)


def check_tiling(one: Job, seen: Decisions, times: list[int]) -> None:
    """Check that fires and decisions are disjoint and complete, and that the next time is the first undecided one."""
    ranges = sorted([*((time, time) for time in seen.fires), *((d.from_ms, d.to_ms) for d in seen.decisions)])
    assert all(a[1] < b[0] for a, b in pairwise(ranges))
    for decision in seen.decisions:
        assert decision.job_id == one.id
        assert {decision.from_ms, decision.to_ms} <= set(times)
        assert decision.count == sum(decision.from_ms <= time <= decision.to_ms for time in times)
    decided = len(seen.fires) + sum(decision.count for decision in seen.decisions)
    following = [*times, rule_of(one.spec, one.anchor_ms).next_after(times[-1])]
    assert seen.next_ms == following[decided]
    assert seen.runs_left == 0 or decided == len(times)


def check_reasons(one: Job, seen: Decisions, now_ms: int) -> None:
    """Check that expired times were past their deadline, and that missed times were more than a little late."""
    due_now = now_ms - spread_ms(one.spec, one.id)
    for decision in seen.decisions:
        assert decision.outcome in (DecisionOutcome.MISSED, DecisionOutcome.EXPIRED)
        if decision.outcome is DecisionOutcome.EXPIRED:
            assert one.spec.start_deadline_sec is not None
            assert due_now - decision.to_ms > one.spec.start_deadline_sec * 1000
            assert f"{one.spec.start_deadline_sec:g} s" in decision.reason
        else:
            assert is_missed(one, decision.from_ms, now_ms)
            assert one.spec.catch_up.policy in decision.reason


# Simple cases


def test_an_occurrence_on_time_fires_and_the_next_one_is_waited_for() -> None:
    assert plan_fire(job(every()), NOW_MS, NOW_MS, None) == FirePlan((NOW_MS,), (), NOW_MS + MINUTE)


def test_early_occurrence_fires_before_its_time() -> None:
    assert plan_fire(job(every()), NOW_MS, NOW_MS - 300, None) == FirePlan((NOW_MS,), (), NOW_MS + MINUTE)


@pytest.mark.parametrize(
    ("policy", "fires", "missed"),
    [(ALL, [0, 1, 2, 3, 4, 5], None), (LATEST, [5], (0, 4, 5)), (NONE, [5], (0, 4, 5))],
)
def test_a_stop_of_five_minutes(policy: CatchUpPolicy, fires: list[int], missed: tuple[int, int, int] | None) -> None:
    seen = decide_all(job(every(catch_up=CatchUp(policy))), NOW_MS, NOW_MS + 5 * MINUTE, None)
    assert seen.fires == [NOW_MS + at * MINUTE for at in fires]
    found = [((d.from_ms - NOW_MS) // MINUTE, (d.to_ms - NOW_MS) // MINUTE, d.count) for d in seen.decisions]
    assert found == ([missed] if missed else [])


@pytest.mark.parametrize("policy", CatchUpPolicy)
def test_a_little_late_is_not_missed(policy: CatchUpPolicy) -> None:
    one = job(every(2, catch_up=CatchUp(policy)))
    seen = decide_all(one, NOW_MS, NOW_MS + MISFIRE_MS, None)
    assert seen.fires == list(range(NOW_MS, NOW_MS + MISFIRE_MS + 1, 2 * SECOND))
    assert seen.decisions == []


def test_nothing_is_caught_up_with_policy_none() -> None:
    plan = plan_fire(job(every(3600, catch_up=CatchUp(NONE))), NOW_MS, NOW_MS + MISFIRE_MS + 1, None)
    assert plan.fires == ()
    assert [d.outcome for d in plan.decisions] == [DecisionOutcome.MISSED]
    assert plan.next_ms == NOW_MS + HOUR


@pytest.mark.parametrize("policy", [ALL, LATEST])
def test_nothing_is_caught_up_from_before_the_window(policy: CatchUpPolicy) -> None:
    daily = job(every(86_400, catch_up=CatchUp(policy, window_sec=3600)))
    seen = decide_all(daily, NOW_MS, NOW_MS + 3 * DAY + 2 * HOUR, None)
    assert seen.fires == []
    assert [(d.count, d.outcome) for d in seen.decisions] == [(4, DecisionOutcome.MISSED)]
    assert seen.next_ms == NOW_MS + 4 * DAY


def test_occurrence_that_only_the_deadline_forbids_is_expired() -> None:
    one = job(every(catch_up=CatchUp(ALL), start_deadline_sec=90))
    seen = decide_all(one, NOW_MS, NOW_MS + HOUR, None)
    assert seen.fires == [NOW_MS + HOUR - MINUTE, NOW_MS + HOUR]
    assert [(d.count, d.outcome) for d in seen.decisions] == [(59, DecisionOutcome.EXPIRED)]


def test_max_runs_leaves_the_rest_undecided() -> None:
    seen = decide_all(job(every(catch_up=CatchUp(ALL))), NOW_MS, NOW_MS + HOUR, 3)
    assert seen.fires == [NOW_MS, NOW_MS + MINUTE, NOW_MS + 2 * MINUTE]
    assert (seen.runs_left, seen.decisions) == (0, [])


def test_plan_never_fires_more_than_the_runs_left_and_names_the_next_time() -> None:
    plan = plan_fire(job(every(catch_up=CatchUp(ALL))), NOW_MS, NOW_MS + HOUR, 2)
    assert plan == FirePlan((NOW_MS, NOW_MS + MINUTE), (), NOW_MS + 2 * MINUTE)


def test_the_last_occurrence_of_a_rule_is_followed_by_nothing() -> None:
    assert plan_fire(job(every(end_at=instant(NOW_MS))), NOW_MS, NOW_MS, None) == FirePlan((NOW_MS,))


@pytest.mark.parametrize("late_ms", [0, HOUR, 400 * DAY])
def test_a_one_shot_fires_however_late(late_ms: int) -> None:
    assert plan_fire(job(), NOW_MS, NOW_MS + late_ms, None) == FirePlan((NOW_MS,))


@pytest.mark.parametrize(("late_ms", "fires"), [(10 * SECOND, True), (10 * SECOND + 1, False)])
def test_a_one_shot_with_a_deadline_fires_until_then(late_ms: int, fires: bool) -> None:
    plan = plan_fire(job(spec(start_deadline_sec=10)), NOW_MS, NOW_MS + late_ms, None)
    assert plan.fires == ((NOW_MS,) if fires else ())
    assert [d.outcome for d in plan.decisions] == ([] if fires else [DecisionOutcome.EXPIRED])


# Overlap


@pytest.mark.parametrize("policy", Overlap)
def test_with_nothing_open_everything_starts(policy: Overlap) -> None:
    assert decide_overlap(policy, has_open=False, has_buffered=False) == (Start.NOW, False)


@pytest.mark.parametrize(
    ("policy", "buffered", "expected"),
    [
        (Overlap.ALLOW, 0, (Start.NOW, False)),
        (Overlap.SKIP, 0, (Start.SKIP, False)),
        (Overlap.BUFFER_ONE, 0, (Start.BUFFER, False)),
        (Overlap.BUFFER_ONE, 1, (Start.SKIP, False)),
        (Overlap.BUFFER_ALL, 0, (Start.BUFFER, False)),
        (Overlap.BUFFER_ALL, 7, (Start.BUFFER, False)),
        (Overlap.CANCEL_OTHER, 0, (Start.BUFFER, True)),
        (Overlap.CANCEL_OTHER, 1, (Start.SKIP, True)),
    ],
)
def test_overlap_policy_decides_a_new_execution_while_one_is_open(
    policy: Overlap, buffered: int, expected: tuple[Start, bool]
) -> None:
    assert decide_overlap(policy, has_open=True, has_buffered=bool(buffered)) == expected


def test_only_occurrences_without_overlap_limit_and_key_are_early() -> None:
    assert may_be_early(spec())
    assert not any(may_be_early(spec(overlap=policy)) for policy in Overlap if policy is not Overlap.ALLOW)
    assert not may_be_early(spec(concurrency=Concurrency("db", 1)))


# Entries


def test_an_entry_is_due_after_the_spread_of_its_job() -> None:
    one = job(every(spread_sec=60), revision=7)
    entry = fire_entry(one, NOW_MS, 3)
    assert (entry.kind, entry.key, entry.number, entry.nominal_ms) == (Kind.FIRE, one.id, 7, NOW_MS)
    assert entry.due_ms == NOW_MS + spread_ms(one.spec, one.id)
    assert (entry.partition, entry.tenant, entry.pool) == (3, one.tenant, one.spec.target.pool)


@pytest.mark.parametrize(("priority", "lane"), [(Priority.HIGH, 0), (Priority.NORMAL, 1), (Priority.LOW, 2)])
def test_a_priority_is_a_lane(priority: Priority, lane: int) -> None:
    assert fire_entry(job(spec(priority=priority)), NOW_MS, 0).lane == lane


def test_only_a_simple_one_shot_fires_without_a_plan() -> None:
    assert fire_entry(job(), NOW_MS, 0).recurring == 0
    assert fire_entry(job(spec(start_deadline_sec=5)), NOW_MS, 0).recurring == 1
    assert fire_entry(job(every()), NOW_MS, 0).recurring == 1


def test_the_first_time_without_an_execution_is_found() -> None:
    one = job(every())
    rule = rule_of(one.spec, one.anchor_ms)
    fired = {execution_id(one.id, NOW_MS), execution_id(one.id, NOW_MS + MINUTE)}
    assert first_unfired(rule, one.id, NOW_MS, fired.intersection) == NOW_MS + 2 * MINUTE
    assert first_unfired(rule, one.id, NOW_MS, set().intersection) == NOW_MS
    assert first_unfired(rule, one.id, NOW_MS + 1, set().intersection) == NOW_MS + MINUTE


def test_many_fired_times_are_looked_up_in_few_steps() -> None:
    one = job(every(1))
    fired = {execution_id(one.id, NOW_MS + n * SECOND) for n in range(3_000)}
    asked: list[int] = []

    def existing(ids: Sequence[ExecutionId]) -> set[ExecutionId]:
        asked.append(len(ids))
        return fired.intersection(ids)

    assert first_unfired(rule_of(one.spec, one.anchor_ms), one.id, NOW_MS, existing) == NOW_MS + 3_000 * SECOND
    assert asked == [1, 4, 16, 64, 256, 1024, 4096]


def test_a_rule_whose_times_have_all_fired_has_none_left() -> None:
    one = job()
    fired = {execution_id(one.id, NOW_MS)}
    assert first_unfired(rule_of(one.spec, one.anchor_ms), one.id, NOW_MS, fired.intersection) is None


@pytest.mark.parametrize(
    ("definition", "state", "cause", "wanted"),
    [
        (every(), JobState.ACTIVE, Cause.SCHEDULE, True),
        (every(phase_sec=1), JobState.ACTIVE, Cause.SCHEDULE, False),
        (every(phase_sec=1), JobState.ACTIVE, Cause.TRIGGER, True),
        (every(), JobState.PAUSED, Cause.SCHEDULE, False),
        (every(), JobState.PAUSED, Cause.BACKFILL, True),
        (spec(), JobState.PAUSED, Cause.SCHEDULE, True),
        (every(), JobState.CANCELLED, Cause.SCHEDULE, False),
        (every(), JobState.CANCELLED, Cause.TRIGGER, False),
    ],
)
def test_unstarted_occurrence_is_wanted_by_its_definition_and_state(
    definition: JobSpec, state: JobState, cause: Cause, wanted: bool
) -> None:
    assert still_wanted(job(definition, state=state), NOW_MS, cause) is wanted
