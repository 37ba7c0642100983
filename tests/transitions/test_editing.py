"""Properties of edits: what a decision about one job writes."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings

from noonday.intake import edits, triggers
from noonday.model.change import Change
from noonday.model.errors import Conflict
from noonday.model.execution import OPEN, WATCH_OVERLAP
from noonday.model.job import Concurrency, JobState, Overlap
from noonday.model.snapshot import Snapshot
from noonday.transitions.editing import Edit, fire_row
from tests.support.crank import is_path
from tests.support.factories import HOUR, MINUTE, NOW_MS, audit, every, execution, job, spec
from tests.transitions.memory import MemoryRows, Transition
from tests.transitions.plausible import ANY_KEY, ORDERED, Choices, chosen, job_spec, rows

EXAMPLES = settings(max_examples=60)
MANY_EXAMPLES = settings(max_examples=150)
"""For rules that few of the examples exercise."""
BY = audit()

Decide = Callable[[Snapshot], Change]


def change_of(choose: Choices, keys: Sequence[Concurrency | None] = ANY_KEY) -> Transition:
    """Return the effect of a request of a user about one job."""
    store = rows(choose, 1, keys)
    (job_id,) = store.jobs
    new = job_spec(choose)
    decide = choose.of(
        [
            lambda before: edits.pause(before, NOW_MS, BY),
            lambda before: edits.resume(before, NOW_MS, BY),
            lambda before: edits.delete(before, NOW_MS, BY),
            lambda before: triggers.trigger(before, "key", NOW_MS, BY),
            lambda before: edits.replace(before, new, None, NOW_MS, BY),
            lambda before: edits.cancel_execution(before, before.known_open[-1].id, "cancelled by ann", BY),
        ]
    )
    try:
        return store.edit(job_id, decide)
    except (Conflict, IndexError):  # a job that has ended is not paused, and one without executions has none to cancel
        return store.edit(job_id, lambda before: Change())


changes = chosen(change_of)
changes_of_one_key = chosen(lambda choose: change_of(choose, (ORDERED,)))


@pytest.mark.slow
@EXAMPLES
@given(changes)
def test_transitions_of_an_edit_are_legal(change: Transition) -> None:
    """I7."""
    for was, now in change.changed:
        states = change.appended(now.id)
        assert is_path([was.state, *states])
        assert [was.state, *states][-1] is now.state


@pytest.mark.slow
@EXAMPLES
@given(changes)
def test_edit_raises_no_dispatch_number(change: Transition) -> None:
    """I5. What is dispatched stays so until its worker confirms, so the old and the new definition never both run."""
    for was, now in change.changed:
        assert (now.dispatch, now.attempt) == (was.dispatch, was.attempt)
        assert was.fired_ms is None or now == was


@pytest.mark.slow
@EXAMPLES
@given(changes)
def test_after_an_edit_each_open_execution_is_in_one_place(change: Transition) -> None:
    """I3."""
    for row in change.after.executions.values():
        assert len(change.after.places_of(row)) == (row.state in OPEN)


@pytest.mark.slow
@MANY_EXAMPLES
@given(changes_of_one_key)
def test_slots_of_an_edit_are_those_that_its_executions_leave(change: Transition) -> None:
    """I13."""
    changed = change.after.used_slots
    changed.subtract(change.before.used_slots)
    assert change.slot_changes == {key: more for key, more in changed.items() if more}


@pytest.mark.slow
@EXAMPLES
@given(changes)
def test_after_an_edit_each_buffered_execution_has_one_to_wait_for(change: Transition) -> None:
    """I12."""
    for job_id in change.after.jobs:
        open_ = change.after.open_of(job_id)
        if any(row.buffered for row in open_):
            assert change.after.jobs[job_id].spec.overlap is not Overlap.ALLOW
            assert any(row.watch & WATCH_OVERLAP and not row.buffered for row in open_)


@pytest.mark.slow
@MANY_EXAMPLES
@given(changes)
def test_nothing_of_a_paused_job_is_due(change: Transition) -> None:
    for job_id, one in change.after.jobs.items():
        if one.state is JobState.PAUSED:
            waiting = [row.id for row in change.after.open_of(job_id) if row.id not in change.writes.new]
            rows_ = [change.after.timeline[key] for key in (job_id, *waiting) if key in change.after.timeline]
            assert all(row.due_ms is None for row in rows_)


def test_end_of_the_last_open_execution_starts_the_oldest_buffered_one() -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    waiting, *buffered = (
        execution(one, NOW_MS + n * MINUTE, fired_ms=None, buffered=int(n > 0), watch=WATCH_OVERLAP) for n in range(3)
    )
    store = MemoryRows.of([one], [waiting, *buffered])
    change = store.edit(one.id, lambda before: edits.cancel_execution(before, waiting.id, "cancelled by ann", BY))
    assert [change.after.executions[row.id].buffered for row in buffered] == [0, 1]


def test_job_that_allows_overlap_starts_all_its_buffered_executions() -> None:
    one = job(every(overlap=Overlap.BUFFER_ALL))
    running, *buffered = (
        execution(one, NOW_MS + n * MINUTE, fired_ms=None if n else NOW_MS, buffered=int(n > 0), watch=WATCH_OVERLAP)
        for n in range(3)
    )
    store = MemoryRows.of([one], [running, *buffered])
    change = store.edit(one.id, lambda before: edits.replace(before, every(), None, NOW_MS, BY))
    assert [change.after.executions[row.id].buffered for row in buffered] == [0, 0]
    assert {row.id for row in buffered} <= change.after.timeline.keys()


def test_edit_fences_its_job_in_each_pool_where_its_executions_may_be() -> None:
    one = job(every())
    elsewhere = execution(one, NOW_MS, pool="elsewhere")
    before = Snapshot(one, None, (elsewhere,))
    assert Edit(before, Change(), set()).fenced_pools == ()
    assert Edit(before, edits.pause(before, NOW_MS, BY), set()).fenced_pools == ("elsewhere", "etl")


def test_job_that_is_paused_already_is_fenced_again() -> None:
    """The fence may not have been set the first time."""
    before = Snapshot(job(every(), state=JobState.PAUSED), None)
    assert Edit(before, Change(), set()).fenced_pools == ("etl",)


def test_execution_of_a_change_that_exists_already_is_not_created_again() -> None:
    one = job()
    store = MemoryRows.of([one], [execution(one, NOW_MS - MINUTE)])
    trigger: Decide = lambda before: triggers.trigger(before, "key", NOW_MS, BY)  # noqa: E731
    first = store.edit(one.id, trigger)
    assert len(first.writes.new) == 1
    assert first.after.edit(one.id, trigger).writes.new == {}


def test_open_executions_are_watched_once_the_job_forbids_overlap() -> None:
    one = job()
    before = Snapshot(one, None)
    strict = msgspec.structs.replace(one, spec=spec(overlap=Overlap.SKIP))
    assert Edit(before, Change(), set()).added_watch == 0
    assert Edit(before, Change(job=strict), set()).added_watch == WATCH_OVERLAP


def test_fire_row_of_a_new_job_is_its_first_time() -> None:
    one = job(every(max_runs=3))
    fire = edits.first_fire(one, NOW_MS)
    row = fire_row(one, fire)
    assert (row.key, row.due_ms, row.runs_left) == (one.id, NOW_MS + MINUTE, 3)
    assert NOW_MS < row.nominal_ms <= NOW_MS + HOUR
