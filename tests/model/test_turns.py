"""Methods of turns that only the drivers use. Turns, lanes and times are in the conformance suite of the hot index."""

from random import Random

import pytest

from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS
from noonday.model.turns import Turns
from tests.support.factories import HOUR, NOW_MS, POOL, entry

PLENTY = {POOL: 100_000}


def in_partitions(count: int, partitions: int = 4) -> list[Entry]:
    return [entry(partition=at % partitions, tenant=f"t-{at % 3}", due_ms=NOW_MS - at) for at in range(count)]


def test_entry_dropped_and_added_again_is_claimed_once() -> None:
    queue = Turns(0)
    entries = in_partitions(40)
    for _ in range(3):
        queue.add(entries)
        queue.drop([1, 2])
    assert len(queue) == 20
    queue.add(entries)
    claimed = queue.claim(NOW_MS, PLENTY, 100)
    assert len(claimed) == 40
    assert set(claimed) == set(entries)
    assert queue.claim(NOW_MS, PLENTY, 100) == []
    assert len(queue) == 0


def test_take_out_returns_the_unclaimed_entries_of_its_partitions() -> None:
    queue = Turns(0)
    entries = in_partitions(40)
    queue.add(entries)
    claimed = queue.claim(NOW_MS, PLENTY, 10)
    queue.own([0])
    queue.claim(NOW_MS, PLENTY, 3)
    queue.drop([3])
    taken = queue.take_out([1, 3])
    assert set(taken) == {each for each in entries if each.partition == 1} - set(claimed)
    assert len(taken) == len(set(taken))
    assert queue.missing(taken) == taken


@pytest.mark.slow
def test_partitions_that_come_and_go_do_not_fill_the_memory() -> None:
    queue = Turns(0)
    entries = [entry(partition=at % 8, due_ms=NOW_MS + HOUR) for at in range(2_000)]
    for _ in range(50):
        queue.add(entries)
        queue.drop(range(4))
    assert len(queue) == 1_000
    assert sum(size for _, size in queue.sizes()) <= 2 * len(queue) + 10_000


def test_nothing_is_ready_without_owned_partitions() -> None:
    queue = Turns(0)
    queue.add(in_partitions(4))
    queue.own([])
    assert queue.next_ready_ms(PLENTY) is None
    assert queue.claim(NOW_MS, PLENTY, 10) == []
    queue.own(range(PARTITIONS))
    assert queue.next_ready_ms(PLENTY) == NOW_MS - 3
    assert len(queue.claim(NOW_MS, PLENTY, 10)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_each_entry_is_claimed_once_in_random_histories(seed: int) -> None:
    random = Random(seed)
    queue, here, owned, now_ms = Turns(0), set[Entry](), set(range(8)), NOW_MS
    known = [entry(partition=at % 8, tenant=f"t-{at % 3}", lane=at % 3, due_ms=NOW_MS + 40 * at) for at in range(100)]
    for _ in range(300):
        step = random.random()
        if step < 0.4:
            new = random.sample(known, 5)
            queue.add(new)
            here.update(new)
        elif step < 0.5:
            gone = set(random.sample(range(8), 3))
            queue.drop(gone)
            here = {each for each in here if each.partition not in gone}
        elif step < 0.6:
            owned = set(random.sample(range(8), random.randrange(9)))
        queue.own(owned)
        claimed = queue.claim(now_ms, PLENTY, random.randrange(10))
        assert all(each in here and each.partition in owned and each.due_ms <= now_ms for each in claimed)
        assert len(claimed) == len(set(claimed))
        here.difference_update(claimed)
        assert len(queue) == len(here)
        assert set(queue.missing(known)) == set(known) - here
        now_ms += random.randrange(40)
    queue.own(range(PARTITIONS))
    assert set(queue.claim(now_ms + HOUR, PLENTY, 1_000)) == here
