"""Plans of jobs with skipped occurrences: each occurrence is decided once, and a skipped one as SKIPPED."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.firing import (
    MISFIRE_MS,
    Decision,
    DecisionOutcome,
    apart_from_left_out,
    plan_error,
    plan_fire,
)
from noonday.model.job import CatchUp, CatchUpPolicy, Job
from noonday.model.left_out import skips_in_force
from noonday.model.schedule import IntervalRule, RuleWithout
from noonday.model.skip import Skip
from tests.support.factories import MINUTE, NOW_MS, every, job

SKIPPED, MISSED = DecisionOutcome.SKIPPED, DecisionOutcome.MISSED


def skipping(one: Job, *minutes: int) -> Job:
    """Return a job that skips its occurrences at some minutes from now."""
    return msgspec.structs.replace(
        one, skips=tuple(Skip(NOW_MS + minute * MINUTE, "ann", NOW_MS, "a holiday") for minute in sorted(minutes))
    )


def minutes_of(decision: Decision) -> tuple[str, int, int, int]:
    return (
        decision.outcome,
        (decision.from_ms - NOW_MS) // MINUTE,
        (decision.to_ms - NOW_MS) // MINUTE,
        decision.count,
    )


def test_skipped_occurrence_does_not_fire_and_tells_who_and_why() -> None:
    plan = plan_fire(skipping(job(every()), 0), NOW_MS, NOW_MS, None)
    (decision,) = plan.decisions
    assert (plan.fires, plan.next_ms) == ((), NOW_MS + MINUTE)
    assert (minutes_of(decision), decision.reason) == ((SKIPPED, 0, 0, 1), "skipped by ann: a holiday")


def test_schedule_stops_at_a_skipped_occurrence_so_that_it_can_be_undone() -> None:
    plan = plan_fire(skipping(job(every()), 1), NOW_MS, NOW_MS, None)
    assert (plan.fires, plan.decisions, plan.next_ms) == ((NOW_MS,), (), NOW_MS + MINUTE)


def test_skipped_occurrence_uses_up_no_run() -> None:
    one = skipping(job(every(max_runs=2)), 0)
    assert plan_fire(one, NOW_MS, NOW_MS, 1).next_ms == NOW_MS + MINUTE


def test_latest_that_was_missed_is_one_that_is_not_skipped() -> None:
    one = skipping(job(every(catch_up=CatchUp(CatchUpPolicy.LATEST))), 2, 4)
    plan = plan_fire(one, NOW_MS, NOW_MS + 4 * MINUTE + MISFIRE_MS + 1, None)
    assert plan.fires == (NOW_MS + 3 * MINUTE,)
    assert sorted(map(minutes_of, plan.decisions)) == [(MISSED, 0, 1, 2), (SKIPPED, 2, 2, 1)]
    assert plan.next_ms == NOW_MS + 4 * MINUTE


def test_error_of_a_range_leaves_skipped_occurrences_apart() -> None:
    plan = plan_error(skipping(job(every()), 1), NOW_MS, NOW_MS + 2 * MINUTE, "unreadable")
    assert [minutes_of(each) for each in plan.decisions] == [("ERROR", 0, 0, 1), (SKIPPED, 1, 1, 1), ("ERROR", 2, 2, 1)]


def test_skip_that_the_schedule_no_longer_has_is_ignored() -> None:
    one = skipping(job(every(120)), 1, 2)
    assert [skip.nominal_ms for skip in skips_in_force(one, NOW_MS)] == [NOW_MS + 2 * MINUTE]
    decision = Decision(one.id, NOW_MS, NOW_MS, 1, MISSED, "late")
    assert apart_from_left_out(one, decision) == (decision,)


@given(
    skipped=st.sets(st.integers(0, 14), max_size=8),
    late=st.integers(0, 14),
    policy=st.sampled_from(CatchUpPolicy),
    window=st.sampled_from([60, 300, 86_400]),
    runs=st.none() | st.integers(1, 5),
)
def test_every_due_occurrence_is_decided_exactly_once(
    skipped: set[int], late: int, policy: CatchUpPolicy, window: int, runs: int | None
) -> None:
    one = skipping(job(every(catch_up=CatchUp(policy, window))), *skipped)
    now_ms, due, left = NOW_MS + late * MINUTE + 20_000, NOW_MS, runs
    decided: list[int] = []
    while due <= now_ms and left != 0:
        plan = plan_fire(one, due, now_ms, left)
        assert plan.next_ms is not None
        span = range(due, plan.next_ms, MINUTE)
        decided += plan.fires
        assert not skipped.intersection((time - NOW_MS) // MINUTE for time in plan.fires)
        for decision in plan.decisions:
            times = [time for time in span if decision.from_ms <= time <= decision.to_ms]
            assert {(time - NOW_MS) // MINUTE in skipped for time in times} == {decision.outcome is SKIPPED}
            assert len(times) == decision.count
            decided += times
        assert sorted(time for time in decided if time >= due) == list(span)
        left = None if left is None else left - len(plan.fires)
        due = plan.next_ms
    assert len(decided) == len(set(decided))


@given(st.sets(st.integers(0, 20)), st.integers(-2, 22), st.integers(-2, 22))
def test_rule_without_some_times_has_all_others(left_out: set[int], after: int, until: int) -> None:
    whole = IntervalRule(MINUTE, start_ms=0, end_ms=20 * MINUTE)
    rule = RuleWithout(whole, tuple(minute * MINUTE for minute in sorted(left_out)))
    kept = [minute * MINUTE for minute in range(21) if minute not in left_out]
    inside = [time for time in kept if after * MINUTE < time <= until * MINUTE]
    assert rule.next_after(after * MINUTE) == next((time for time in kept if time > after * MINUTE), None)
    assert rule.last_until(until * MINUTE, after * MINUTE) == (inside[-1] if inside else None)
    if after <= until:
        assert rule.count(after * MINUTE, until * MINUTE) == len(inside)


@pytest.mark.parametrize(("reason", "text"), [(None, "skipped by ann"), ("why", "skipped by ann: why")])
def test_text_of_a_skip(reason: str | None, text: str) -> None:
    assert Skip(NOW_MS, "ann", NOW_MS, reason).text == text
