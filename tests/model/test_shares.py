"""Turns by weight, and tenants with a limited room."""

from collections import Counter

import pytest

from noonday.model.shares import Shares
from noonday.model.turns import Turns
from tests.support.factories import NOW_MS, POOL, entry

ABC = {"a": 1, "b": 2, "c": 4}


def queue_of(counts: dict[str, int]) -> Turns:
    queue = Turns(0)
    queue.add(entry(tenant=tenant, due_ms=NOW_MS) for tenant, count in counts.items() for _ in range(count))
    return queue


def claimed(queue: Turns, room: int, shares: Shares) -> Counter[str]:
    return Counter(each.tenant for each in queue.claim(NOW_MS, {POOL: room}, 10_000, shares))


@pytest.mark.slow
@pytest.mark.parametrize("room", [1, 3, 10, 70, 500])
def test_under_saturation_each_gets_its_weight(room: int) -> None:
    queue, got = queue_of(dict.fromkeys(ABC, 3_000)), Counter[str]()
    while got.total() < 2_100:
        got += claimed(queue, room, Shares(ABC))
    for tenant, weight in ABC.items():
        assert got[tenant] / got.total() == pytest.approx(weight / 7, rel=0.1)


def test_unused_share_goes_to_the_others() -> None:
    assert claimed(queue_of({"a": 500, "b": 3, "c": 500}), 600, Shares(ABC)).total() == 600


@pytest.mark.slow
def test_a_few_jobs_do_not_wait_behind_a_multitude() -> None:
    queue = queue_of({"many": 20_000})
    queue.add(entry(tenant="few", due_ms=NOW_MS) for _ in range(20))
    assert claimed(queue, 50, Shares())["few"] == 20


def test_tenant_takes_no_more_than_its_room() -> None:
    queue, shares = queue_of({"a": 100, "b": 100}), Shares(limited={"a"}, rooms={"a": 7})
    assert claimed(queue, 60, shares) == {"a": 7, "b": 53}
    assert shares.rooms == {"a": 0}
    assert claimed(queue, 60, shares) == {"b": 47}
    assert claimed(queue, 60, Shares(limited={"a"}, rooms={"a": 60})) == {"a": 60}


def test_limited_tenant_without_room_gets_nothing() -> None:
    queue = queue_of({"a": 5, "b": 5})
    assert claimed(queue, 60, Shares(limited={"a"})) == {"b": 5}
    assert queue.waiting(NOW_MS, {POOL: 1}, {"a", "b"}) == {(POOL, "a"): 5}
    assert queue.waiting(NOW_MS, {POOL: 0}, {"a", "b"}) == {}


def test_ready_entries_of_blocked_tenants_do_not_count_as_ready() -> None:
    queue = queue_of({"a": 5})
    queue.claim(NOW_MS, {POOL: 1}, 0)
    assert queue.next_ready_ms({POOL: 1}) == NOW_MS
    assert queue.next_ready_ms({POOL: 1}, blocked={"a"}) is None


def test_single_claims_are_fair_as_well() -> None:
    queue = queue_of({"a": 100, "b": 100})
    got = sum((claimed(queue, 1, Shares({"a": 3})) for _ in range(80)), Counter[str]())
    assert got == {"a": 60, "b": 20}


def test_returning_tenant_gets_no_compensation() -> None:
    queue = queue_of({"a": 1_000, "b": 10})
    claimed(queue, 500, Shares())
    queue.add(entry(tenant="b", due_ms=NOW_MS) for _ in range(200))
    assert claimed(queue, 100, Shares())["b"] <= 51
