"""Write sets and the rows in them."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model.execution import WATCH_KEY, WATCH_OVERLAP, State
from noonday.model.firing import Entry, Fire, Kind
from noonday.model.ids import JobId
from noonday.model.job import Concurrency, JobState, Overlap
from noonday.model.slots import NOBODY, of_ordering_key, of_pool, slot_key
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.rows import ReturnedRuns, job_columns, timeline_row, watch_of
from noonday.transitions.write_set import WriteSet, dispatch_entry, transition
from tests.support.factories import HOUR, MINUTE, NOW_MS, POOL, TENANT, WORKER, every, execution, job, spec

ORDERING = of_ordering_key("customer-42")


def write_set(**read: object) -> WriteSet:
    return WriteSet(Inputs(**read), NOW_MS)  # type: ignore[arg-type]


# Transitions as text


@pytest.mark.slow
@settings(max_examples=100)
@given(state=st.sampled_from(State), at_ms=st.integers(0, 2**48), reason=st.none() | st.text())
def test_transition_is_a_json_array_of_state_time_worker_and_reason(
    state: State, at_ms: int, reason: str | None
) -> None:
    assert json.loads(transition(state, at_ms, None, reason)) == (
        [state, at_ms] if reason is None else [state, at_ms, None, reason]
    )
    assert json.loads(transition(state, at_ms, WORKER)) == [state, at_ms, WORKER]


def test_execution_that_changes_twice_is_written_once_with_both_transitions() -> None:
    writes, was = write_set(), execution()
    running = msgspec.structs.replace(was, state=State.RUNNING)
    ended = msgspec.structs.replace(was, state=State.SUCCEEDED)
    writes.settle(was, running, ",[1,1]")
    writes.settle(running, ended, ",[5,2]")
    assert [(row.state, row.transitions) for row in writes.settled] == [(State.SUCCEEDED, ",[1,1],[5,2]")]


# Slots


def test_closed_execution_frees_every_slot_of_its_own() -> None:
    writes, was = write_set(), execution(slots=("key/db", of_pool(POOL)))
    writes.settle(was, msgspec.structs.replace(was, state=State.CANCELLED), "")
    assert writes.slots == {(TENANT, "key/db"): -1, (NOBODY, of_pool(POOL)): -1}
    assert writes.freed == set(writes.slots)


@pytest.mark.parametrize(("paused", "kept"), [(False, (ORDERING,)), (True, ())])
def test_returned_execution_keeps_only_the_slot_of_its_ordering_key_unless_its_job_is_paused(
    paused: bool, kept: tuple[str, ...]
) -> None:
    was = execution(slots=(ORDERING, "tenant"))
    writes = write_set(paused=[was.job_id] if paused else [])
    writes.settle(was, msgspec.structs.replace(was, fired_ms=None), "")
    assert writes.settled[0].slots == kept
    assert set(writes.freed) == {slot_key(TENANT, name) for name in was.slots if name not in kept}


def test_dispatched_execution_keeps_its_slots_when_it_starts() -> None:
    writes, was = write_set(), execution(slots=("tenant",))
    writes.settle(was, msgspec.structs.replace(was, state=State.RUNNING), "")
    assert (writes.settled[0].slots, writes.slots) == (("tenant",), {})


# Runs that return to a job


def test_run_that_did_not_start_returns_to_the_runs_left() -> None:
    one = job(every(max_runs=3))
    writes = write_set(fires={one.id: Fire(NOW_MS + MINUTE, NOW_MS + MINUTE, 2)})
    writes.return_run(one)
    writes.return_run(one)
    assert writes.returned_runs == [ReturnedRuns(one.id, 2)]


def test_job_whose_runs_were_used_up_is_due_again_when_one_returns() -> None:
    one = job(every(max_runs=1))
    writes = write_set(fires={one.id: Fire(NOW_MS + 1, None, 0)})
    writes.return_run(one)
    assert [(row.due_ms, row.runs_left) for row in writes.timeline.values()] == [(NOW_MS + MINUTE, 1)]
    assert writes.returned_runs == []


def test_run_returns_to_no_job_without_max_runs() -> None:
    one = job(every())
    writes = write_set(fires={one.id: Fire(NOW_MS + MINUTE, NOW_MS + MINUTE)})
    writes.return_run(one)
    assert (writes.returned_runs, writes.timeline) == ([], {})


# Timeline rows


def test_suspended_execution_has_a_row_without_a_due_time_that_remembers_it() -> None:
    writes, waiting = write_set(), execution(fired_ms=None)
    writes.suspend(waiting, NOW_MS + HOUR)
    (row,) = writes.timeline.values()
    assert (row.key, row.due_ms, row.nominal_ms) == (waiting.id, None, NOW_MS + HOUR)
    assert writes.entries == []


def test_waiting_execution_is_an_entry_of_the_hot_index() -> None:
    writes, waiting = write_set(), execution(fired_ms=None, dispatch=3)
    writes.wait(waiting, NOW_MS + HOUR)
    assert writes.entries == [dispatch_entry(waiting, NOW_MS + HOUR)]
    assert (writes.entries[0].kind, writes.entries[0].number) == (Kind.DISPATCH, 3)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.builds(Entry, kind=st.sampled_from(Kind)), st.none() | st.integers(0), st.none() | st.integers(0), st.text())
def test_timeline_row_has_each_field_of_its_entry(
    entry: Entry, due_ms: int | None, runs_left: int | None, ordering_key: str
) -> None:
    row = timeline_row(entry, due_ms, runs_left, ordering_key)
    others = [name for name in Entry.__struct_fields__ if name != "due_ms"]
    assert [getattr(row, name) for name in others] == [getattr(entry, name) for name in others]
    assert (row.due_ms, row.runs_left, row.ordering_key) == (due_ms, runs_left, ordering_key)


# Rows of jobs


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        (spec(), 0),
        (spec(overlap=Overlap.SKIP), WATCH_OVERLAP),
        (spec(concurrency=Concurrency("db", 1)), WATCH_KEY),
        (spec(overlap=Overlap.SKIP, concurrency=Concurrency("db", 1)), WATCH_OVERLAP | WATCH_KEY),
    ],
)
def test_executions_are_watched_if_others_wait_for_their_end(said: object, flags: int) -> None:
    assert watch_of(said) == flags  # type: ignore[arg-type]


def test_cancelled_job_releases_its_unique_key() -> None:
    said = spec(unique_key="nightly")
    assert job_columns(job(said)).unique_key == "nightly"
    assert job_columns(job(said, state=JobState.CANCELLED)).unique_key is None


def test_spec_is_left_out_to_keep_what_only_a_newer_release_knows() -> None:
    assert job_columns(job(), with_spec=False).spec is None
    assert json.loads(job_columns(job()).spec or "")["target"] == {"pool": POOL, "handler": "load"}


# Inputs


@pytest.mark.parametrize(
    ("limit", "slot", "ordering_key"),
    [
        (Limit(), None, None),
        (Limit(key="db", limit=2), "key/db", None),
        (Limit(key="db", limit=1, ordered=True), "ordering/db", "db"),
    ],
)
def test_limit_names_the_slot_of_its_key(limit: Limit, slot: str | None, ordering_key: str | None) -> None:
    assert (limit.slot, limit.ordering_key) == (slot, ordering_key)


def test_job_without_a_limit_is_not_limited() -> None:
    assert Inputs().limit_of(JobId("unknown")) == Limit()


def test_without_any_source_the_default_policy_holds() -> None:
    assert RetryPolicySources(None, None, None).policy.max_attempts == 5


def test_closed_execution_is_no_longer_among_the_open_ones() -> None:
    one = job()
    first, second = execution(one, NOW_MS), execution(one, NOW_MS + MINUTE)
    inputs = Inputs(open_=[first, second])
    inputs.note(first, is_open=False)
    started = msgspec.structs.replace(second, state=State.RUNNING)
    inputs.note(started, is_open=True)
    assert inputs.open == {one.id: [started]}
