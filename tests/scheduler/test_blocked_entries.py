"""Only so many blocked entries are tried again as could be dispatched."""

import msgspec

from noonday.model.batch import Blocked
from noonday.model.budget import EntryBudget
from noonday.model.firing import Entry, Kind
from noonday.model.ids import PARTITIONS
from noonday.model.slots import SlotKey, of_key, of_ordering_key
from noonday.scheduler.blocked_entries import FIRST_RETRY_SEC, LONGEST_RETRY_SEC, SPARE, BlockedEntries
from tests.support.factories import NOW_MS, TENANT, entry

KEY: SlotKey = (TENANT, of_key("k"))
ORDERED: SlotKey = (TENANT, of_ordering_key("k"))
ALL = range(PARTITIONS)


def block(*entries: Entry, slot: SlotKey = KEY, limit: int = 1) -> list[Blocked]:
    return [Blocked(each, "full", slot, limit) for each in entries]


def entries(count: int) -> list[Entry]:
    return [entry(due_ms=NOW_MS + n) for n in range(count)]


def test_nothing_is_tried_again_at_once() -> None:
    blocked = BlockedEntries(EntryBudget())
    blocked.add(block(*entries(3)), 0)
    assert blocked.take(ALL, FIRST_RETRY_SEC / 2) == []
    assert len(blocked.take(ALL, FIRST_RETRY_SEC)) == 3
    assert len(blocked) == 0


def test_the_first_are_tried_again_and_the_rest_stay() -> None:
    blocked, waiting = BlockedEntries(EntryBudget()), entries(1_000)
    blocked.add(block(*reversed(waiting), limit=3), 0)
    assert blocked.take(ALL, FIRST_RETRY_SEC) == waiting[: 6 + SPARE]
    assert waiting[0] not in blocked
    assert all(each in blocked for each in waiting[6 + SPARE :])


def test_entry_that_is_blocked_twice_is_tried_once() -> None:
    blocked, (one,) = BlockedEntries(EntryBudget()), entries(1)
    blocked.add(block(one, one), 0)
    assert blocked.take(ALL, FIRST_RETRY_SEC) == [one]


def test_entries_of_a_freed_slot_are_tried_at_once_alone() -> None:
    blocked = BlockedEntries(EntryBudget())
    theirs, ours = entries(2), entries(2)
    blocked.add(block(*theirs), 0)
    blocked.add(block(*ours, slot=ORDERED), 0)
    blocked.release([ORDERED[1]])
    assert blocked.take(ALL, 0) == ours
    blocked.release()
    assert blocked.take(ALL, 0) == theirs


def test_number_of_tried_entries_doubles_if_none_stays_blocked() -> None:
    """The entries that were tried were stale, or wait in the index for another reason."""
    blocked, waiting = BlockedEntries(EntryBudget()), entries(1_000)
    blocked.add(block(*waiting), 0)
    sizes = [len(blocked.take(ALL, at * FIRST_RETRY_SEC)) for at in range(1, 5)]
    assert sizes == [4, 8, 16, 32]


def test_entries_that_stay_blocked_are_tried_less_often() -> None:
    blocked, waiting = BlockedEntries(EntryBudget()), entries(100)
    blocked.add(block(*waiting), 0)
    times = []
    for tick in range(100):
        if taken := blocked.take(ALL, tick / 10):
            assert taken == waiting[:4]
            times.append(tick / 10)
            blocked.add(block(*taken), tick / 10)
    assert times == [FIRST_RETRY_SEC, 1.0, 2.0, 4.0, 6.0, 8.0]
    assert times[-1] - times[-2] == LONGEST_RETRY_SEC


def test_other_entries_are_tried_soon_after_one_went() -> None:
    blocked, waiting = BlockedEntries(EntryBudget()), entries(100)
    blocked.add(block(*waiting), 0)
    now = FIRST_RETRY_SEC
    for n in range(10):
        taken = blocked.take(ALL, now)
        assert taken == waiting[n : n + 4]
        blocked.add(block(*taken[1:]), now)
        now += FIRST_RETRY_SEC


def test_entries_of_lost_partitions_are_dropped() -> None:
    blocked, waiting = BlockedEntries(EntryBudget()), entries(50)
    blocked.add(block(*waiting), 0)
    ours = waiting[-1].partition
    assert blocked.take({ours}, FIRST_RETRY_SEC) == [each for each in waiting if each.partition == ours][:4]
    assert waiting[0] not in blocked


def test_two_entries_of_one_key_may_differ_in_anything() -> None:
    blocked, (one,) = BlockedEntries(EntryBudget()), entries(1)
    moved = msgspec.structs.replace(one, pool="another")
    blocked.add(block(one, moved), 0)
    assert blocked.take(ALL, FIRST_RETRY_SEC) == [one, moved]


def test_retries_of_an_ordering_key_go_before_its_fires() -> None:
    blocked, fires = BlockedEntries(EntryBudget()), entries(50)
    again = entry(due_ms=NOW_MS + 1_000, kind=Kind.DISPATCH)
    blocked.add(block(*fires, again, slot=ORDERED), 0)
    assert blocked.take(ALL, FIRST_RETRY_SEC) == [again, *fires[:3]]
    plain = BlockedEntries(EntryBudget())
    plain.add(block(*fires, again), 0)
    assert plain.take(ALL, FIRST_RETRY_SEC) == fires[:4]


def test_blocked_entries_keep_to_their_budget_and_to_the_earliest() -> None:
    budget = EntryBudget(200)
    blocked, many, few = BlockedEntries(budget), entries(5_000), entries(10)
    blocked.add(block(*few, slot=ORDERED), 0)
    for start in range(0, len(many), 50):
        blocked.add(block(*reversed(many[start : start + 50])), 0)
        assert len(blocked) == budget.blocked <= budget.for_blocked
    assert all(each in blocked for each in [*few, *many[:60]])
    assert many[0] in blocked.take(ALL, FIRST_RETRY_SEC)
    assert budget.blocked == len(blocked)
