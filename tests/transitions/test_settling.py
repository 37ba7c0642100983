"""Properties of settlements: what the reports of workers, and their absence, may do to executions."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonday.model.execution import FINAL, OPEN, WATCH_OVERLAP, Execution, Outcome, State
from noonday.model.ids import JobId, WorkerId
from noonday.model.job import JobState
from noonday.model.message import Report
from noonday.transitions.settling import match_reports, split_successes
from tests.support.crank import is_path
from tests.support.factories import NOW_MS, WORKER, dispatch, execution, job, report
from tests.transitions.memory import MemoryRows, Settling, is_nothing, keeps_transitions
from tests.transitions.plausible import OF_WORKERS, WORKERS, Choices, chosen, report_about, reports_of, rows

EXAMPLES = settings(max_examples=60)
STRANGER = WorkerId("w-9")


def settling_of_any_kind(choose: Choices) -> Settling:
    """Return a settlement of reports, of a lost worker, or of orphans."""
    store = rows(choose)
    kind = choose.of(("reports", "reports", "lost", "orphans"))
    if kind == "lost":
        return store.lose(choose.of(WORKERS))
    return store.requeue_orphans() if kind == "orphans" else store.settle(reports_of(choose, store))


settlings = chosen(settling_of_any_kind)


# Reports that count, and reports that do not


@pytest.mark.slow
@EXAMPLES
@given(chosen(lambda choose: (store := rows(choose), reports_of(choose, store))))
def test_batch_that_is_settled_again_writes_nothing(given_: tuple[MemoryRows, list[Report]]) -> None:
    """I7. The same batch is read twice if the recorder died between its transaction and its answer."""
    store, reports = given_
    again = store.settle(reports).after.settle(reports)
    assert is_nothing(again.writes)
    assert again.settled.usage == {}


@pytest.mark.slow
@EXAMPLES
@given(chosen(lambda choose: (store := rows(choose), reports_of(choose, store))), st.sampled_from([-1, 1, 7]))
def test_report_of_another_dispatch_is_refused_and_changes_nothing(
    given_: tuple[MemoryRows, list[Report]], further: int
) -> None:
    """I6."""
    store, current = given_
    reports = [msgspec.structs.replace(each, dispatch=each.dispatch + further) for each in current]
    settling = store.settle(reports)
    assert is_nothing(settling.writes)
    successes, others = split_successes(reports)
    assert list(settling.settled.refused) == successes + others


@pytest.mark.slow
@EXAMPLES
@given(chosen(lambda choose: (store := rows(choose), [report_about(choose, row) for row in running(store)])))
def test_report_of_another_worker_is_refused_and_changes_nothing(given_: tuple[MemoryRows, list[Report]]) -> None:
    """I6. A worker that took a redelivered dispatch after another one had reported its start."""
    store, current = given_
    reports = [msgspec.structs.replace(each, worker_id=STRANGER) for each in current]
    settling = store.settle(reports)
    assert is_nothing(settling.writes)
    assert len(settling.settled.refused) == len(reports)


@pytest.mark.slow
@EXAMPLES
@given(chosen(lambda choose: (store := rows(choose), [report_about(choose, row) for row in not_dispatched(store)])))
def test_report_about_an_execution_that_is_not_dispatched_is_refused(given_: tuple[MemoryRows, list[Report]]) -> None:
    """I6. It waits on the timeline or is buffered, so its present number is not out yet."""
    store, reports = given_
    settling = store.settle(reports)
    assert is_nothing(settling.writes)
    assert len(settling.settled.refused) == len(reports)


def running(store: MemoryRows) -> list[Execution]:
    return [row for row in store.executions.values() if row.state is State.RUNNING]


def not_dispatched(store: MemoryRows) -> list[Execution]:
    return [row for row in store.executions.values() if row.fired_ms is None]


def unclaimed(store: MemoryRows) -> list[Execution]:
    return [row for row in store.executions.values() if row.awaits_start]


def conflicting_ends(choose: Choices) -> tuple[MemoryRows, list[Report]]:
    """Return rows and reports in which both workers say that they have ended the same dispatches."""
    store, ends = rows(choose), sorted(set(OF_WORKERS) - {Outcome.STARTED})
    reports = [
        msgspec.structs.replace(report_about(choose, row, ends), worker_id=worker)
        for row in unclaimed(store)
        for worker in WORKERS
    ]
    return store, reports


@pytest.mark.slow
@EXAMPLES
@given(chosen(conflicting_ends))
def test_conflicting_reports_in_one_batch_settle_once(given_: tuple[MemoryRows, list[Report]]) -> None:
    """One worker is believed, and the other one is refused."""
    store, reports = given_
    settling = store.settle(reports)
    refused = {each.execution_id: each.worker_id for each in settling.settled.refused}
    assert len(settling.settled.refused) == len(refused) == len(unclaimed(store))
    for row in unclaimed(store):
        now = settling.after.executions[row.id]
        assert now.worker_id != refused[row.id]
        assert now.attempt <= row.attempt + 1
        assert now.dispatch <= row.dispatch + 1


def test_start_whose_end_is_in_the_same_batch_is_dropped() -> None:
    of = dispatch()
    start, end = report(of, Outcome.STARTED), report(of, Outcome.FAILED)
    assert split_successes([start, end]) == ([], [end])


def test_start_of_another_worker_is_not_dropped() -> None:
    of = dispatch()
    start, end = report(of, Outcome.STARTED), report(of, Outcome.FAILED, worker_id=STRANGER)
    assert split_successes([start, end]) == ([], [start, end])


def test_success_that_is_reported_again_is_counted_apart_from_refused_reports() -> None:
    """The handler may have recorded its success itself, so the first report of it adds the usage of the run."""
    of = dispatch()
    row = execution(id=of.execution_id, state=State.SUCCEEDED, worker_id=WORKER)
    success = report(of)
    settling = MemoryRows.of([], [row]).settle([success])
    assert settling.writes.repeated_successes == [success]
    assert settling.settled.refused == ()


def test_report_about_an_unknown_execution_is_refused() -> None:
    unknown = report(dispatch())
    assert match_reports([], [unknown]).cases == []
    assert MemoryRows.of([]).settle([unknown]).settled.refused == (unknown,)


# The changed rows


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_dispatch_never_falls_and_no_attempt_is_beyond_the_allowed_number(settling: Settling) -> None:
    """I5."""
    for was, now in settling.changed:
        policy = settling.before.jobs[now.job_id].spec.retry_policy
        assert policy is not None
        assert now.dispatch >= was.dispatch
        assert was.attempt <= now.attempt <= now.dispatch
        assert now.attempt <= policy.max_attempts


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_dispatch_number_rises_exactly_when_an_execution_leaves_its_dispatch_open(settling: Settling) -> None:
    """So reports of the former dispatch are refused from then on."""
    for was, now in settling.changed:
        returns = was.fired_ms is not None and now.fired_ms is None and now.state in OPEN
        assert now.dispatch - was.dispatch == returns


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_transitions_are_legal_and_end_in_the_state_of_the_row(settling: Settling) -> None:
    """I7. Beyond `KEPT_DISPATCHES` dispatches only the end is stored, with its start."""
    for was, now in settling.changed:
        states = settling.appended(now.id)
        assert was.state in OPEN
        if states:
            assert is_path([was.state if keeps_transitions(was) else State.PENDING, *states])
            assert states[-1] is now.state
        else:
            assert not keeps_transitions(was) or (was.buffered and not now.buffered)
            assert now.state in OPEN


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_each_changed_execution_is_in_one_place_while_it_is_open_and_then_in_none(settling: Settling) -> None:
    """I3."""
    for _, now in settling.changed:
        assert len(settling.after.places_of(now)) == (now.state in OPEN)
        assert (now.finished_ms is not None) == (now.state in FINAL)


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_row_on_the_timeline_names_the_present_dispatch(settling: Settling) -> None:
    for _, now in settling.changed:
        row = settling.after.timeline.get(now.id)
        if row is not None:
            is_paused = settling.before.jobs[now.job_id].state is JobState.PAUSED
            assert row.number == now.dispatch
            assert (row.due_ms is None) == is_paused
            assert is_paused or row.due_ms >= NOW_MS


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_slots_of_a_settlement_are_those_of_executions_that_close_or_return(settling: Settling) -> None:
    """I13. The counters stay equal to the number of executions that have the slots."""
    before, after = settling.before.used_slots, settling.after.used_slots
    after.subtract(before)
    assert settling.slot_changes == {key: more for key, more in after.items() if more}
    assert settling.writes.freed == {key for key, more in after.items() if more < 0}


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_end_of_the_last_open_execution_starts_exactly_the_next_buffered_one(settling: Settling) -> None:
    """I12."""
    closed = Counter(now.job_id for was, now in settling.changed if now.state not in OPEN and was.watch & WATCH_OVERLAP)
    for job_id in settling.before.jobs:
        buffered = [row.id for row in settling.before.open_of(job_id) if row.buffered]
        started = [id_ for id_ in buffered if not settling.after.executions[id_].buffered]
        still_open = [row for row in _waited_for(settling.after, job_id) if row.id not in started]
        expected = buffered[:1] if closed[job_id] and not still_open else []
        assert started == expected
        assert all(id_ in settling.after.timeline for id_ in started)


def _waited_for(store: MemoryRows, job_id: JobId) -> list[Execution]:
    return [row for row in store.open_of(job_id) if row.watch & WATCH_OVERLAP and not row.buffered]


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_each_dead_execution_is_a_dead_letter_with_an_incident(settling: Settling) -> None:
    """I21."""
    died = {now.id for _, now in settling.changed if now.state is State.DEAD}
    assert set(settling.writes.dead_letters) == died
    assert died <= {incident.execution_id for incident in settling.writes.incidents}


@pytest.mark.slow
@EXAMPLES
@given(settlings)
def test_answer_names_each_entry_that_the_hot_index_needs(settling: Settling) -> None:
    due = {key: row for key, row in settling.writes.timeline.items() if row.due_ms is not None}
    assert {(entry.key, entry.number, entry.due_ms) for entry in settling.settled.entries} == {
        (key, row.number, row.due_ms) for key, row in due.items()
    }


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.ORPHANED])
def test_settlement_without_a_report_refuses_nothing(outcome: Outcome) -> None:
    one, is_running = job(), outcome is Outcome.LOST
    running = {"state": State.RUNNING, "worker_id": WORKER} if is_running else {}
    store = MemoryRows.of([one], [execution(one, **running)])
    settling = store.lose(WORKER) if is_running else store.requeue_orphans()
    assert settling.settled.refused == ()
    assert [now.dispatch for _, now in settling.changed] == [2]
