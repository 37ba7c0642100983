"""Properties of fires: what due entries become, and what limits keep back."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from noonday.model.batch import FireRequest
from noonday.model.execution import OPEN, State
from noonday.model.firing import Kind
from noonday.model.ids import ExecutionId, JobId, execution_id
from noonday.model.job import Concurrency, Overlap, rule_of
from noonday.model.slots import is_of_ordering_key, of_ordering_key
from noonday.transitions.fire_batch import is_constrained, is_simple, open_to_read
from noonday.transitions.inputs import Limit
from tests.support.crank import is_path
from tests.support.factories import NOW_MS, dispatch, entry, job, report, spec
from tests.transitions.memory import Firing, MemoryRows
from tests.transitions.plausible import ANY_KEY, ORDERED, Choices, chosen, rows

EXAMPLES = settings(max_examples=60)
MANY_EXAMPLES = settings(max_examples=150)
"""For rules that few of the examples exercise."""


def firing_of(
    choose: Choices,
    keys: Sequence[Concurrency | None] = ANY_KEY,
    open_executions: Sequence[int] = (0, 1, 2, 3),
) -> Firing:
    """Return a fire of some due entries, in any order."""
    store = rows(choose, 3, keys, open_executions)
    requests = sorted(store.requests(), key=lambda request: choose.below(100))
    return store.fire(requests[: len(requests) + 1 - choose.of((1, 1, 2))])


firings = chosen(firing_of)
firings_without_a_key = chosen(lambda choose: firing_of(choose, (None,), (0, 0, 0, 1, 2)))
firings_of_one_key = chosen(lambda choose: firing_of(choose, (ORDERED,), (0, 0, 0, 1)))


# What becomes of entries


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_each_request_is_fired_or_blocked_or_back_on_the_hot_index(firing: Firing) -> None:
    fired, blocked = [each.entry for each in firing.batch.fired], [each.entry for each in firing.batch.blocked]
    for request in firing.requests:
        assert [request.entry in each for each in (fired, blocked, firing.writes.entries)].count(True) == 1


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_each_time_up_to_the_next_one_is_fired_or_decided_exactly_once(firing: Firing) -> None:
    """I2. The times of the schedule from the one in the entry up to, and without, the next one on the timeline."""
    for request in firing.batch.fired:
        if request.entry.kind != Kind.FIRE:
            continue
        job_id = JobId(request.entry.key)
        times = _times_decided(firing, request)
        fired = [row.nominal_ms for row in firing.writes.new.values() if row.job_id == job_id]
        decided = [each for each in firing.writes.decisions if each.job_id == job_id]
        in_ranges = [time for each in decided for time in times if each.from_ms <= time <= each.to_ms]
        assert sorted(fired + in_ranges) == times
        assert sum(each.count for each in decided) == len(in_ranges)


def _times_decided(firing: Firing, request: FireRequest) -> list[int]:
    """Return the times of a schedule that are before its next one on the timeline, computed one by one."""
    one, from_ms = firing.before.jobs[JobId(request.entry.key)], request.entry.nominal_ms
    row = firing.after.timeline.get(one.id)
    if row is None:
        return [from_ms]
    rule, times = rule_of(one.spec, one.anchor_ms), []
    time = rule.next_after(from_ms - 1)
    while time is not None and time < row.nominal_ms:
        times.append(time)
        time = rule.next_after(time)
    assert row.due_ms is None or time == row.nominal_ms
    return times


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_blocked_and_returned_entries_keep_their_rows(firing: Firing) -> None:
    fired = {request.entry.key for request in firing.batch.fired}
    for key, row in firing.before.timeline.items():
        if key not in fired and ExecutionId(key) not in firing.before.executions:
            assert firing.after.timeline.get(key) == row
            assert not any(new.job_id == key for new in firing.writes.new.values())


@pytest.mark.slow
@MANY_EXAMPLES
@given(firings_without_a_key)
def test_max_runs_counts_executions_and_never_falls_below_zero(firing: Firing) -> None:
    for request in firing.batch.fired:
        row = firing.after.timeline.get(request.entry.key)
        if request.runs_left is not None and row is not None and request.entry.kind == Kind.FIRE:
            new = sum(each.job_id == request.entry.key for each in firing.writes.new.values())
            assert row.runs_left == request.runs_left - new
            assert row.runs_left >= 0
            assert row.runs_left > 0 or row.due_ms is None


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_execution_of_an_occurrence_has_the_id_of_its_job_and_its_time(firing: Firing) -> None:
    """So an occurrence that is fired again meets its own primary key."""
    for id_, new in firing.writes.new.items():
        assert id_ == execution_id(new.job_id, new.nominal_ms)
        assert id_ not in firing.before.executions


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_each_open_execution_is_in_one_place(firing: Firing) -> None:
    """I3."""
    for row in firing.after.executions.values():
        assert len(firing.after.places_of(row)) == (row.state in OPEN)


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_batch_has_each_dispatched_execution_once(firing: Firing) -> None:
    """What the batch names is what is published."""
    dispatched = [
        row.id for row in firing.after.executions.values() if row.fired_ms == firing.writes.now_ms and row.state in OPEN
    ]
    assert sorted(firing.batch.members) == sorted(dispatched)


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_fire_raises_no_number_and_closes_only_what_it_may(firing: Firing) -> None:
    """I5, I7. Only CANCEL_OTHER closes executions, and those that are not dispatched."""
    for was, now in firing.changed:
        states = firing.appended(now.id)
        assert (now.dispatch, now.attempt) == (was.dispatch, was.attempt)
        assert is_path([was.state, *states])
        assert states in ([], [State.CANCELLED])
        assert not states or firing.before.jobs[now.job_id].spec.overlap is Overlap.CANCEL_OTHER


# Overlap


@pytest.mark.slow
@MANY_EXAMPLES
@given(firings_without_a_key)
def test_overlap_is_never_more_than_the_rule_allows(firing: Firing) -> None:
    """I12."""
    for job_id, one in firing.before.jobs.items():
        if one.spec.overlap is Overlap.ALLOW:
            continue
        open_ = firing.after.open_of(job_id)
        new = [row for row in open_ if row.id in firing.writes.new]
        waited_for = [row for row in open_ if row.watch and not row.buffered]
        unbuffered = [row for row in new if not row.buffered]
        assert len(unbuffered) <= 1
        assert not unbuffered or len(waited_for) == 1
        buffered = [row for row in open_ if row.buffered]
        assert not buffered or waited_for
        assert len(buffered) <= {Overlap.SKIP: 0, Overlap.BUFFER_ALL: len(buffered)}.get(one.spec.overlap, 1)


@pytest.mark.slow
@MANY_EXAMPLES
@given(firings_without_a_key)
def test_cancel_other_ends_or_revokes_every_other_execution(firing: Firing) -> None:
    for request in firing.batch.fired:
        one = firing.before.jobs.get(JobId(request.entry.key))
        if (
            one is None
            or one.spec.overlap is not Overlap.CANCEL_OTHER
            or not (request.plan is None or request.plan.fires)
        ):
            continue
        for was in firing.before.open_of(one.id):
            now = firing.after.executions[was.id]
            assert not was.watch or was.buffered or now.state not in OPEN or now.revocation is not None


# Slots


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_slots_of_a_fire_are_those_that_its_dispatches_take_and_its_ends_free(firing: Firing) -> None:
    """I13."""
    changes = firing.after.used_slots
    changes.subtract(firing.before.used_slots)
    assert firing.slot_changes == {key: more for key, more in changes.items() if more}


@pytest.mark.slow
@EXAMPLES
@given(firings)
def test_no_slot_is_used_beyond_its_limit(firing: Firing) -> None:
    """I13. A limit that was lowered may be exceeded already: then no more start."""
    limits = Counter(firing.before.caps)
    for one in firing.before.jobs.values():
        if one.spec.concurrency and not one.spec.concurrency.ordered:
            limits[one.tenant, f"key/{one.spec.concurrency.key}"] = one.spec.concurrency.limit
    before, after = firing.before.used_slots, firing.after.used_slots
    for slot, limit in limits.items():
        assert after[slot] <= max(limit, before[slot])


# Ordering keys


@pytest.mark.slow
@MANY_EXAMPLES
@given(firings_of_one_key)
def test_only_the_front_of_an_ordering_key_fires(firing: Firing) -> None:
    """I22. The front is the earliest fire of the key, by due time and then by job."""
    fronts = firing.before.fronts()
    for request in firing.batch.fired:
        if request.entry.kind == Kind.FIRE and (request.plan is None or request.plan.fires):
            assert fronts[request.entry.tenant, ORDERED.key] == request.entry.key


@pytest.mark.slow
@MANY_EXAMPLES
@given(firings_of_one_key)
def test_at_most_one_execution_of_an_ordering_key_is_dispatched_in_a_batch_and_only_into_a_free_slot(
    firing: Firing,
) -> None:
    """I22. An execution that keeps the slot while it waits for a retry goes on with it."""
    slot = of_ordering_key(ORDERED.key)
    before, after = firing.before.used_slots, firing.after.used_slots
    for tenant in {row.tenant for row in firing.before.jobs.values()}:
        assert after[tenant, slot] <= max(1, before[tenant, slot])
    for each in firing.writes.redispatched:
        assert [name for name in each.slots or () if is_of_ordering_key(name)] == [slot]


def test_ordering_key_fires_its_jobs_in_the_order_of_their_times_one_after_the_other() -> None:
    jobs = [
        job(spec(concurrency=ORDERED), now_ms=NOW_MS - late, id=JobId(f"01900000-0000-7000-8000-{late:012x}"))
        for late in (3, 9, 1, 7)
    ]
    store, fired = MemoryRows.of(jobs), []
    while requests := store.requests():
        firing = store.fire(requests)
        new = [firing.after.executions[id_] for id_ in firing.writes.new]
        fired += [row.job_id for row in new]
        store = firing.after.settle([report(dispatch(row.id)) for row in new]).after
    assert fired == [each.id for each in sorted(jobs, key=lambda each: each.anchor_ms)]


# Which rows a fire needs


def test_entry_is_simple_only_without_a_plan_an_overlap_rule_and_a_key() -> None:
    assert is_simple(FireRequest(entry(early=1)))
    assert not is_simple(FireRequest(entry(early=0)))
    assert not is_simple(FireRequest(entry(early=1, recurring=1)))
    assert not is_simple(FireRequest(entry(early=1, kind=Kind.DISPATCH)))


def test_entry_that_may_not_be_early_is_constrained() -> None:
    assert is_constrained(FireRequest(entry(early=0)))
    assert not is_constrained(FireRequest(entry(early=1)))


def test_only_cancel_other_reads_every_open_execution() -> None:
    one, other = JobId("one"), JobId("other")
    limits = {one: Limit(Overlap.SKIP), other: Limit(Overlap.CANCEL_OTHER)}
    assert open_to_read(limits, [one]) == {one: 1}
    assert open_to_read(limits, [other])[other] > 1_000_000
