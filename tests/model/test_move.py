"""Plans of jobs with moved occurrences: each fires once, at its new time, and its former time is decided as MOVED."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.execution import Cause
from noonday.model.firing import DecisionOutcome, apart_from_left_out, plan_error, plan_fire, still_wanted
from noonday.model.job import CatchUp, CatchUpPolicy, Job
from noonday.model.left_out import left_out_from, schedule_of, skips_in_force, undecided_times
from noonday.model.move import Move
from noonday.model.schedule import IntervalRule, RuleWith
from noonday.model.skip import Skip
from tests.support.factories import HOUR, MINUTE, NOW_MS, SECOND, every, instant, job, spec

MOVED, SKIPPED, MISSED = DecisionOutcome.MOVED, DecisionOutcome.SKIPPED, DecisionOutcome.MISSED


def moving(one: Job, *pairs: tuple[float, float]) -> Job:
    """Return a job whose occurrences were moved, in minutes from now."""
    moves = [Move(at(a), at(a), at(b), "ann", NOW_MS, "a window") for a, b in pairs]
    return msgspec.structs.replace(one, moves=tuple(moves))


def at(minutes: float) -> int:
    return NOW_MS + round(minutes * MINUTE)


def test_moved_occurrence_does_not_fire_at_its_time_and_tells_who_and_why() -> None:
    plan = plan_fire(moving(job(every()), (0, 0.5)), NOW_MS, NOW_MS, None)
    (decision,) = plan.decisions
    assert (plan.fires, plan.next_ms) == ((), at(0.5))
    assert (decision.outcome, decision.from_ms, decision.count) == (MOVED, NOW_MS, 1)
    assert decision.reason == "moved to 2030-01-01T00:00:30.000Z by ann: a window"


def test_moved_occurrence_fires_at_its_new_time() -> None:
    one = moving(job(every()), (0, 0.5))
    assert plan_fire(one, at(0.5), at(0.5), None) == msgspec.structs.replace(
        plan_fire(job(every()), at(0.5), at(0.5), None), next_ms=at(1)
    )


def test_occurrence_may_be_moved_to_before_its_time() -> None:
    one = moving(job(every()), (2, 0.5))
    assert [plan_fire(one, at(each), at(each), None).next_ms for each in (0, 0.5, 1, 2)] == [
        at(0.5),
        at(1),
        at(2),
        at(3),
    ]
    assert plan_fire(one, at(2), at(2), None).fires == ()


def test_occurrence_may_be_moved_beyond_the_end_of_its_schedule() -> None:
    one = moving(job(every(end_at=instant(at(1)))), (1, 90))
    assert plan_fire(one, at(1), at(1), None).next_ms == at(90)
    assert plan_fire(one, at(90), at(90), None).fires == (at(90),)
    assert plan_fire(one, at(90), at(90), None).next_ms is None


def test_only_the_new_time_uses_up_a_run() -> None:
    one = moving(job(every(max_runs=2)), (0, 0.5))
    assert plan_fire(one, NOW_MS, NOW_MS, 1).next_ms == at(0.5)
    assert plan_fire(one, at(0.5), at(0.5), 1).fires == (at(0.5),)


def test_missed_range_with_moved_occurrences_is_divided() -> None:
    one = moving(job(every(catch_up=CatchUp(CatchUpPolicy.LATEST))), (1, 2.5), (4, 60))
    plan = plan_fire(one, NOW_MS, at(4) + 20_000, None)
    decided = [(each.outcome, each.from_ms, each.to_ms, each.count) for each in plan.decisions]
    assert plan.fires == (at(3),)
    assert sorted(decided, key=lambda each: each[1]) == [
        (MISSED, at(0), at(0), 1),
        (MOVED, at(1), at(1), 1),
        (MISSED, at(2), at(2.5), 2),
    ]
    assert plan.next_ms == at(4)


def test_error_of_a_range_leaves_moved_occurrences_apart() -> None:
    plan = plan_error(moving(job(every()), (1, 1.5)), NOW_MS, at(2), "unreadable")
    assert [(each.outcome, each.from_ms, each.to_ms, each.count) for each in plan.decisions] == [
        ("ERROR", at(0), at(0), 1),
        (MOVED, at(1), at(1), 1),
        ("ERROR", at(1.5), at(2), 2),
    ]


def test_move_ends_with_the_occurrence_of_its_schedule() -> None:
    one = moving(job(every(120)), (1, 1.5), (2, 2.5))
    assert [each.nominal_ms for each in left_out_from(one, NOW_MS)] == [at(2)]
    assert schedule_of(one).take(NOW_MS, 3) == [at(2), at(2.5), at(4)]


def test_new_time_that_an_edited_schedule_has_is_one_occurrence() -> None:
    one = moving(job(every(30)), (1, 1.5))
    assert schedule_of(one).take(NOW_MS, 4) == [at(0.5), at(1), at(1.5), at(2)]
    assert schedule_of(one).count(NOW_MS, at(2)) == 4


def test_moved_occurrence_may_be_skipped_at_its_new_time() -> None:
    one = msgspec.structs.replace(moving(job(every()), (1, 1.5)), skips=(Skip(at(1.5), "ann", NOW_MS),))
    assert [each.nominal_ms for each in skips_in_force(one)] == [at(1.5)]
    assert plan_fire(one, at(1.5), at(1.5), None).decisions[0].outcome is SKIPPED


def test_occurrence_that_was_moved_twice_is_decided_at_both_former_times() -> None:
    """The first former time was decided before the second move, so both moves are kept."""
    first = Move(at(0), at(0), at(0.5), "ann", NOW_MS)
    one = msgspec.structs.replace(job(every()), moves=(first, Move(at(0), at(0.5), at(1.5), "bob", NOW_MS)))
    (decision,) = plan_fire(one, at(0.5), at(0.5), None).decisions
    assert (decision.outcome, decision.reason) == (MOVED, "moved to 2030-01-01T00:01:30.000Z by bob")
    # Later the first one is forgotten, and the second one holds by the time that the schedule has.
    later = msgspec.structs.replace(one, moves=one.moves[1:])
    assert plan_fire(later, at(1), at(1), None).next_ms == at(1.5)


def test_one_shot_has_no_moves() -> None:
    once = moving(job(spec(run_at=instant(at(1)))), (1, 2))
    assert schedule_of(once).next_after(at(1)) is None


def test_execution_at_the_new_time_is_wanted_as_long_as_the_move_is() -> None:
    one = moving(job(every()), (1, 1.5))
    assert still_wanted(one, at(1.5), Cause.SCHEDULE)
    assert not still_wanted(msgspec.structs.replace(one, moves=()), at(1.5), Cause.SCHEDULE)


def test_decided_times_that_are_left_out_are_not_planned_again() -> None:
    one = moving(job(every()), (1, 1.5))
    assert undecided_times(one, at(1.5)).next_after(at(0.5)) == at(1.5)
    assert undecided_times(one, at(1)).next_after(at(0.5)) == at(1)


@given(
    moved=st.dictionaries(st.integers(0, 11), st.integers(0, 23).map(lambda half: half / 2 + 0.25), max_size=5),
    late=st.integers(0, 14),
    policy=st.sampled_from(CatchUpPolicy),
    window=st.sampled_from([60, 300, 86_400]),
)
def test_every_due_occurrence_is_decided_exactly_once(
    moved: dict[int, float], late: int, policy: CatchUpPolicy, window: int
) -> None:
    pairs = {new: minute for minute, new in moved.items()}
    one = moving(job(every(catch_up=CatchUp(policy, window))), *((minute, new) for new, minute in pairs.items()))
    former, schedule = {at(minute) for minute in pairs.values()}, schedule_of(one)
    now_ms, due = NOW_MS + late * MINUTE + 20_000, schedule.next_after(NOW_MS - 1)
    decided: list[int] = []
    while due is not None and due <= now_ms:
        plan = plan_fire(one, due, now_ms, None)
        assert plan.next_ms is not None
        span = schedule.take(due - 1, 1000, plan.next_ms - 1)
        assert former.isdisjoint(plan.fires)
        decided += plan.fires
        for decision in plan.decisions:
            times = [time for time in span if decision.from_ms <= time <= decision.to_ms]
            assert {time in former for time in times} == {decision.outcome is MOVED}
            assert len(times) == decision.count
            decided += times
        assert sorted(time for time in decided if time >= due) == span
        due = plan.next_ms
    assert len(decided) == len(set(decided))


@given(st.sets(st.integers(0, 40)), st.integers(-2, 44), st.integers(-2, 44))
def test_rule_with_other_times_has_both(halves: set[int], after: int, until: int) -> None:
    half = MINUTE // 2
    added = tuple(sorted(each * half + 1 for each in halves))
    rule = RuleWith(IntervalRule(MINUTE, start_ms=0, end_ms=20 * MINUTE), added)
    times = sorted([*(minute * MINUTE for minute in range(21)), *added])
    inside = [time for time in times if after * half < time <= until * half]
    assert rule.next_after(after * half) == next((time for time in times if time > after * half), None)
    assert rule.last_until(until * half, after * half) == (inside[-1] if inside else None)
    if after <= until:
        assert rule.count(after * half, until * half) == len(inside)


@pytest.mark.parametrize(("reason", "because"), [(None, ""), ("why", ": why")])
def test_texts_of_a_move(reason: str | None, because: str) -> None:
    move = Move(NOW_MS, NOW_MS, NOW_MS + HOUR, "ann", NOW_MS, reason)
    assert move.text == f"moved to 2030-01-01T01:00:00.000Z by ann{because}"
    assert move.text_at_new_time == f"moved from 2030-01-01T00:00:00.000Z by ann{because}"


def test_decision_about_a_range_without_moves_is_one() -> None:
    one = moving(job(every()), (1, 1.5))
    plan = plan_error(one, at(2), at(3) + SECOND, "unreadable")
    assert apart_from_left_out(one, plan.decisions[0]) == plan.decisions
