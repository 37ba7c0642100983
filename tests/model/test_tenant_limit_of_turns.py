"""An index in memory keeps only the earliest entries of a large tenant."""

from random import Random

import pytest

from noonday.model.firing import Entry
from noonday.model.turns import Turns
from tests.support.factories import NOW_MS, POOL, entry

MOST = 10


def rows(count: int, tenant: str = "big", due_ms: int = NOW_MS) -> list[Entry]:
    """Rows of the timeline."""
    return [entry(tenant=tenant, due_ms=due_ms) for _ in range(count)]


def position_of(one: Entry) -> tuple[int, str]:
    return one.due_ms, one.key


def claimed(queue: Turns, count: int) -> list[Entry]:
    return queue.claim(NOW_MS, {POOL: count}, count)


def test_tenant_has_no_more_entries_than_the_limit() -> None:
    queue, big, small = Turns(0, MOST), rows(50), rows(5, "small")
    queue.add(big)
    queue.add(small)
    assert len(queue) == MOST + 5
    assert {each.tenant for each in claimed(queue, 100)} == {"big", "small"}


def test_omitted_entries_are_fetched_when_half_is_claimed() -> None:
    queue, big = Turns(0, MOST), rows(50)
    queue.add(big)
    assert queue.omitted() == {}
    claimed(queue, 5)
    assert queue.omitted() == {"big": position_of(big[MOST])}


def test_fetch_continues_at_the_first_omitted_entry() -> None:
    queue, big = Turns(0, MOST), rows(35)
    queue.add(big)
    got = []
    while some := claimed(queue, 3):
        got += some
        for tenant, first in queue.omitted().items():
            page = [each for each in big if position_of(each) >= first][:4]
            queue.readmit(tenant, position_of(page[-1]) if len(page) == 4 else None)
            queue.add(page)
    assert got == big
    assert queue.omitted() == {}


def test_earlier_entry_is_added_to_a_full_queue() -> None:
    queue = Turns(0, MOST)
    queue.add(rows(MOST, due_ms=NOW_MS + 1_000))
    (urgent,) = rows(1)
    queue.add([urgent])
    queue.add(rows(3, due_ms=NOW_MS + 2_000))
    assert claimed(queue, 100) == [urgent]
    queue.add(rows(1))
    assert len(claimed(queue, 100)) == 1


@pytest.mark.slow
def test_no_entry_is_forgotten_in_random_histories() -> None:
    for seed in range(30):
        random, queue = Random(seed), Turns(0, MOST)
        timeline = {position_of(each): each for each in rows(60) + rows(60, due_ms=NOW_MS - 5) + rows(20, "small")}
        for _ in range(400):
            chance = random.random()
            if chance < 0.3:
                queue.add(random.sample(sorted(timeline.values(), key=position_of), min(len(timeline), 8)))
            elif chance < 0.4:
                late = rows(2, random.choice(["big", "small"]), NOW_MS - random.randrange(9))
                timeline |= {position_of(each): each for each in late}
                queue.add(late)
            elif chance < 0.8:
                for each in claimed(queue, random.randrange(6)):
                    del timeline[position_of(each)]
            fetch(queue, timeline)
        for _ in range(300):
            for each in claimed(queue, 4):
                del timeline[position_of(each)]
            fetch(queue, timeline)
        assert {position for position in timeline if is_known(queue, timeline[position])} == set()
        queue.add(list(timeline.values()))
        for _ in range(300):
            for each in claimed(queue, 4):
                del timeline[position_of(each)]
            fetch(queue, timeline)
        assert timeline == {}


def fetch(queue: Turns, timeline: dict[tuple[int, str], Entry]) -> None:
    for tenant, first in queue.omitted().items():
        waiting = sorted(each for each in timeline if each >= first and timeline[each].tenant == tenant)
        page = waiting[:5]
        queue.readmit(tenant, page[-1] if len(page) == 5 else None)
        queue.add([timeline[each] for each in page])


def is_known(queue: Turns, one: Entry) -> bool:
    return not queue.missing([one])
