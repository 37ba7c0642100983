"""Dispatches that are taken and not claimed."""

from noonday.worker.parked import PARKED_RETRY_SEC, ParkedDispatches
from tests.support.clock import ManualClock
from tests.support.factories import dispatch


def test_parked_dispatches_are_due_after_the_retry_interval() -> None:
    clock = ManualClock()
    parked = ParkedDispatches(clock)
    parked.add([dispatch()])
    assert not parked.are_due
    clock.advance(PARKED_RETRY_SEC)
    assert parked.are_due


def test_a_later_dispatch_does_not_delay_those_parked_before() -> None:
    clock = ManualClock()
    parked = ParkedDispatches(clock)
    parked.add([dispatch()])
    clock.advance(PARKED_RETRY_SEC)
    parked.add([dispatch()])
    assert parked.are_due


def test_no_parked_dispatches_are_never_due() -> None:
    clock = ManualClock()
    clock.advance(PARKED_RETRY_SEC)
    assert not ParkedDispatches(clock).are_due


def test_taking_removes_all() -> None:
    parked, both = ParkedDispatches(ManualClock()), [dispatch(), dispatch()]
    parked.add(both)
    assert parked.take() == both
    assert len(parked) == 0


def test_acked_duplicates_are_dropped_and_other_dispatches_of_the_execution_stay() -> None:
    parked = ParkedDispatches(ManualClock())
    first, second = dispatch("x", 1), dispatch("x", 2)
    parked.add([first, second])
    parked.drop_duplicates([dispatch("x", 1)])
    assert parked.take() == [second]
