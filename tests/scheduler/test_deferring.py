"""Entries that fail for a reason of their own, and are tried again ever later."""

from noonday.scheduler.deferring import FIRST_SEC, LONGEST_SEC, MAX_DEFERRED, DeferredEntries
from tests.support.factories import entry

ALL = range(256)


def test_deferred_entry_is_tried_again_after_its_wait() -> None:
    deferred, one = DeferredEntries(), entry()
    deferred.add([one], 10.0)
    assert one in deferred
    assert deferred.take(ALL, 10.0 + FIRST_SEC - 0.01) == []
    assert deferred.take(ALL, 10.0 + FIRST_SEC) == [one]
    assert one not in deferred


def test_each_failure_doubles_the_wait_up_to_the_longest() -> None:
    deferred, one, now, waits = DeferredEntries(), entry(), 0.0, []
    for _ in range(9):
        deferred.add([one], now)
        due = next(sec for sec in range(1, 100) if deferred.take(ALL, now + sec))
        waits.append(due)
        now += due
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_SEC, LONGEST_SEC, LONGEST_SEC]


def test_entry_that_was_fired_begins_again_with_the_first_wait() -> None:
    deferred, one = DeferredEntries(), entry()
    for now in (0.0, 100.0):
        deferred.add([one], now)
        deferred.take(ALL, now + LONGEST_SEC)
    deferred.forget([one])
    deferred.add([one], 200.0)
    assert deferred.take(ALL, 200.0 + FIRST_SEC) == [one]


def test_entry_of_a_partition_that_was_given_up_is_dropped() -> None:
    """Its new owner finds out by trying."""
    deferred, one = DeferredEntries(), entry(partition=3)
    deferred.add([one], 0.0)
    assert deferred.take([4], LONGEST_SEC) == []
    assert len(deferred) == 0


def test_earliest_entry_is_tried_first_although_later_ones_wait() -> None:
    deferred, first, second = DeferredEntries(), entry(), entry()
    deferred.add([first], 0.0)
    deferred.add([second], 0.5)
    assert deferred.take(ALL, FIRST_SEC) == [first]
    assert deferred.take(ALL, FIRST_SEC + 0.5) == [second]


def test_present_row_of_a_key_is_another_entry() -> None:
    deferred, one = DeferredEntries(), entry()
    deferred.add([one], 0.0)
    assert entry(one.key, due_ms=one.due_ms + 1) not in deferred


def test_number_of_deferred_entries_is_limited() -> None:
    deferred = DeferredEntries()
    deferred.add([entry(f"job-{number}") for number in range(MAX_DEFERRED + 5)], 0.0)
    assert len(deferred) == MAX_DEFERRED
