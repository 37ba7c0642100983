"""The last reports of workers, whose claims the recorder marks in their place."""

from noonday.model.ids import WorkerId
from noonday.recorder.last_reports import SILENT_SEC, LastReports
from tests.support.factories import WORKER, dispatch, report

OTHER = WorkerId("w-2")


def test_worker_is_silent_some_seconds_after_its_last_report() -> None:
    last = LastReports()
    last.add(0, [report(dispatch())], 10.0)
    assert last.silent_workers(10.0 + SILENT_SEC) == []
    assert last.silent_workers(10.0 + SILENT_SEC + 0.1) == [WORKER]


def test_dispatches_of_the_last_seconds_are_kept_by_worker() -> None:
    last, mine, others = LastReports(), dispatch(number=2), dispatch()
    last.add(0, [report(mine), report(others, worker_id=OTHER)], 10.0)
    assert last.dispatches_of(WORKER) == [(mine.execution_id, 2)]
    assert last.dispatches_of(OTHER) == [(others.execution_id, 1)]


def test_earlier_reports_are_dropped_because_the_worker_marked_them_before_it_reported_again() -> None:
    last, early, late = LastReports(), dispatch(), dispatch()
    last.add(0, [report(early)], 10.0)
    last.add(5, [report(late)], 10.0 + SILENT_SEC + 0.1)
    assert last.dispatches_of(WORKER) == [(late.execution_id, 1)]


def test_batch_that_is_read_again_counts_once_and_as_old_as_at_first() -> None:
    """The store refused it, so the recorder reads the same offset until it is settled."""
    last, one = LastReports(), dispatch()
    for reported_at in (10.0, 11.0, 12.0):
        last.add(7, [report(one)], reported_at)
    assert last.dispatches_of(WORKER) == [(one.execution_id, 1)]
    assert last.silent_workers(10.0 + SILENT_SEC + 0.1) == [WORKER]


def test_removed_worker_is_known_again_with_its_next_report() -> None:
    last, one = LastReports(), dispatch()
    last.add(0, [report(one)], 10.0)
    last.remove(WORKER)
    assert last.silent_workers(100.0) == []
    last.add(1, [report(one)], 20.0)
    assert last.dispatches_of(WORKER) == [(one.execution_id, 1)]
