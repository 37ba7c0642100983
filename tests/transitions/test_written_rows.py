"""The rows that a transition collects for the drivers."""

from noonday.model.firing import Fire, fire_entry
from noonday.model.ids import partition_of
from noonday.transitions.rows import SlotChange
from noonday.transitions.written_rows import WrittenRows
from tests.support.factories import HOUR, NOW_MS, TENANT, every, job


def test_fire_row_that_is_due_becomes_an_entry_of_the_hot_index() -> None:
    rows, one = WrittenRows(), job(every(60))
    rows.put_fire(one, Fire(NOW_MS + HOUR, NOW_MS + HOUR, 3))
    (row,) = rows.timeline.values()
    assert (row.due_ms, row.runs_left) == (NOW_MS + HOUR, 3)
    assert rows.entries == [fire_entry(one, NOW_MS + HOUR, partition_of(one.id))]


def test_fire_row_without_a_time_stays_off_the_hot_index() -> None:
    rows = WrittenRows()
    rows.put_fire(job(every(60)), Fire(NOW_MS, None))
    assert len(rows.timeline) == 1
    assert rows.entries == []


def test_row_that_is_put_twice_is_written_once_with_the_last_values() -> None:
    rows, one = WrittenRows(), job(every(60))
    rows.put_fire(one, Fire(NOW_MS, NOW_MS))
    rows.put_fire(one, Fire(NOW_MS + HOUR, NOW_MS + HOUR))
    assert [row.due_ms for row in rows.timeline.values()] == [NOW_MS + HOUR]


def test_changes_of_a_slot_are_added_up_and_have_the_limit_of_its_key() -> None:
    rows = WrittenRows()
    rows.slots[TENANT, "key"] += 1
    rows.slots[TENANT, "key"] += 1
    rows.slots[TENANT, "pool"] -= 1
    assert rows.slot_changes({(TENANT, "key"): 5}) == [
        SlotChange(TENANT, "key", 2, 5),
        SlotChange(TENANT, "pool", -1, None),
    ]
