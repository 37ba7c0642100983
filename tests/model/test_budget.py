"""One budget for all entries of the timeline in memory."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.budget import EntryBudget, fair_level
from noonday.model.firing import Entry
from noonday.model.turns import Turns
from tests.support.factories import NOW_MS, POOL, entry

PLENTY = {POOL: 10_000}


def rows(count: int, tenant: str, due_ms: int = NOW_MS) -> list[Entry]:
    return [entry(tenant=tenant, due_ms=due_ms) for _ in range(count)]


def position_of(one: Entry) -> tuple[int, str]:
    return one.due_ms, one.key


@pytest.mark.slow
@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 300))
def test_fair_level_is_the_largest_that_fits(counts: list[int], room: int) -> None:
    level = fair_level(counts, room)
    assert level >= 1
    if level > 1:
        assert sum(min(count, level) for count in counts) <= room
    if any(count > level for count in counts):
        assert sum(min(count, level + 1) for count in counts) > room


def test_many_tenants_together_keep_to_the_budget() -> None:
    budget = EntryBudget(100)
    queue = Turns(0, 1_000, budget)
    for at in range(50):
        queue.add(rows(20, f"t-{at}"))
        assert len(queue) <= budget.limit


def test_blocked_entries_count_against_the_budget_of_the_index() -> None:
    budget = EntryBudget(100)
    queue = Turns(0, 1_000, budget)
    queue.add(rows(90, "a"))
    budget.blocked = 50
    queue.add(rows(1, "a"))
    assert len(queue) + budget.blocked <= budget.limit


def test_earliest_entries_of_each_tenant_stay() -> None:
    queue = Turns(0, 1_000, EntryBudget(100))
    big = [entry(tenant="big", due_ms=NOW_MS + at) for at in range(98)]
    queue.add(reversed(big))
    small = rows(5, "small", NOW_MS + 500)
    queue.add(small)
    assert queue.missing(small) == []
    assert queue.missing(big[:50]) == []
    assert queue.missing(big[-1:]) == big[-1:]
    assert len(queue) <= 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_every_entry_is_claimed_in_the_end_despite_omissions(seed: int) -> None:
    random, queue = Random(seed), Turns(0, 40, EntryBudget(50))
    timeline: dict[tuple[int, str], Entry] = {}
    for _ in range(300):
        if random.random() < 0.4:
            tenant = random.choice(["a", "a", "b", "c", f"t-{random.randrange(30)}"])
            new = [
                entry(tenant=tenant, due_ms=NOW_MS - random.randrange(9), lane=random.randrange(3)) for _ in range(6)
            ]
            timeline |= {position_of(each): each for each in new}
            queue.add(new)
        for each in queue.claim(NOW_MS, PLENTY, random.randrange(6)):
            del timeline[position_of(each)]
        assert len(queue) <= 50 + 6
        fetch(queue, timeline)
    for _ in range(2_000):
        for each in queue.claim(NOW_MS, PLENTY, 5):
            del timeline[position_of(each)]
        assert queue.next_ready_ms(PLENTY) is not None or not timeline or queue.omitted()
        fetch(queue, timeline)
    assert timeline == {}


def fetch(queue: Turns, timeline: dict[tuple[int, str], Entry]) -> None:
    """Fetch omitted entries like the hydrator."""
    for tenant, first in queue.omitted().items():
        page = max(1, min(5, queue.room()))
        waiting = sorted(each for each in timeline if each >= first and timeline[each].tenant == tenant)[:page]
        queue.readmit(tenant, waiting[-1] if len(waiting) == page else None)
        queue.add([timeline[each] for each in waiting])
