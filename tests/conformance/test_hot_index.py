from collections import Counter
from random import Random

import pytest

from noonday.model.firing import Entry, Kind
from noonday.model.ids import PARTITIONS
from noonday.ports.hot_index import HotIndex
from tests.support.clock import ManualClock
from tests.support.drivers import LEAD_MS, Capability
from tests.support.factories import HOUR, NOW_MS, POOL, entry

PLENTY = {POOL: 10_000}
ALL = range(PARTITIONS)
HIGH, NORMAL, LOW = 0, 1, 2


@pytest.fixture(autouse=True)
async def owner_of_everything(index: HotIndex) -> None:
    await index.generations(ALL)


async def take(index: HotIndex, now_ms: int = NOW_MS, credit: int = 10_000, limit: int = 10_000) -> list[Entry]:
    return await index.claim(now_ms, ALL, {POOL: credit}, limit)


# Content


async def test_added_entry_is_claimed_once(index: HotIndex) -> None:
    one = entry()
    await index.add([one])
    assert await take(index) == [one]
    assert await take(index) == []


async def test_adding_an_entry_again_changes_nothing(index: HotIndex) -> None:
    one = entry()
    await index.add([one, one])
    await index.add([one])
    assert await take(index) == [one]
    assert await take(index) == []


@pytest.mark.parametrize("change", [{"number": 2}, {"nominal_ms": NOW_MS - 1}])
async def test_another_revision_or_time_of_the_same_key_is_another_entry(
    index: HotIndex, change: dict[str, int]
) -> None:
    one = entry("a-job")
    other = entry("a-job", **change)
    await index.add([one])
    assert await index.missing([one, other]) == [other]
    await index.add([other])
    assert set(await take(index)) == {one, other}


async def test_index_names_the_entries_it_lacks(index: HotIndex) -> None:
    here, later, gone, never = [entry(due_ms=NOW_MS + at) for at in (0, HOUR, -1, 5)]
    await index.add([here, later, gone])
    assert await take(index, NOW_MS - 1) == [gone]
    assert await index.missing([here, later, gone, never]) == [gone, never]
    assert await index.missing([]) == []


async def test_claimed_entry_can_be_added_again(index: HotIndex) -> None:
    one = entry()
    await index.add([one])
    await take(index)
    await index.add([one])
    assert await take(index) == [one]


async def test_index_keeps_its_generations_while_it_keeps_its_entries(index: HotIndex) -> None:
    generations = await index.generations(ALL)
    await index.add([entry()])
    await take(index)
    assert generations.keys() == set(ALL)
    assert all(generations.values())
    assert await index.generations(ALL) == generations
    assert await index.generations([7]) == {7: generations[7]}


@pytest.mark.needs(Capability.IN_ITS_PROCESS)
async def test_partitions_that_are_not_owned_any_more_are_forgotten(index: HotIndex) -> None:
    entries = in_four_partitions()
    await index.add(entries)
    await index.forget([1, 3])
    kept = [each for each in entries if each.partition in (0, 2)]
    assert await index.missing(entries) == [each for each in entries if each not in kept]
    assert set(await take(index, NOW_MS + HOUR)) == set(kept)


@pytest.mark.needs(Capability.IN_ITS_PROCESS)
async def test_unclaimed_entries_remain_after_other_partitions_were_forgotten(index: HotIndex) -> None:
    entries = [entry(partition=at % 2, tenant=f"t-{at % 3}", lane=at % 3) for at in range(12)]
    await index.add(entries)
    claimed = await take(index, credit=5)
    await index.forget([1])
    rest = await take(index)
    expected = {each for each in entries if each.partition == 0} - set(claimed)
    assert set(rest) == expected


@pytest.mark.needs(Capability.IN_ITS_PROCESS)
async def test_forgotten_partition_has_another_generation(index: HotIndex) -> None:
    before = await index.generations([1, 2])
    await index.forget([1])
    after = await index.generations([1, 2])
    assert after[1] != before[1]
    assert after[2] == before[2]


@pytest.mark.needs(Capability.OUTLIVES_ITS_OWNER)
async def test_entries_forgotten_by_an_owner_are_there_for_the_next_one(index: HotIndex) -> None:
    entries = in_four_partitions()
    await index.add(entries)
    claimed = await take(index, credit=1)
    generations = await index.generations(ALL)
    await index.forget(ALL)
    assert await index.missing(entries) == claimed
    assert set(await take(index, NOW_MS + HOUR)) == set(entries) - set(claimed)
    assert await index.generations(ALL) == generations


async def test_only_entries_of_the_named_partitions_are_claimed(index: HotIndex) -> None:
    entries = in_four_partitions()
    await index.add(entries)
    assert await index.claim(NOW_MS + HOUR, [], PLENTY, 100) == []
    assert await index.next_ready_ms([], PLENTY) is None
    for partitions in ([1, 2], [2, 3], [0]):
        claimed = await index.claim(NOW_MS + HOUR, partitions, PLENTY, 100)
        assert {each.partition for each in claimed} == set(partitions) - ({2} if 3 in partitions else set())
        entries = [each for each in entries if each not in claimed]
    assert entries == []


async def test_partitions_that_come_back_to_their_owner_have_their_entries(index: HotIndex) -> None:
    entries = in_four_partitions()
    await index.add(entries)
    claimed = await take(index, credit=2)
    assert await index.claim(NOW_MS, [], PLENTY, 100) == []
    assert set(await take(index, NOW_MS + HOUR)) == set(entries) - set(claimed)


def in_four_partitions() -> list[Entry]:
    return [entry(partition=partition, due_ms=NOW_MS + at) for partition in range(4) for at in (0, HOUR)]


# Times


async def test_an_entry_is_ready_at_its_due_time_and_not_before(index: HotIndex) -> None:
    one = entry(due_ms=NOW_MS)
    await index.add([one])
    assert await take(index, NOW_MS - 1) == []
    assert await take(index, NOW_MS) == [one]


async def test_early_entry_is_ready_a_lead_ahead(index: HotIndex) -> None:
    one = entry(due_ms=NOW_MS, early=1)
    await index.add([one])
    assert await take(index, NOW_MS - LEAD_MS - 1) == []
    assert await take(index, NOW_MS - LEAD_MS) == [one]


async def test_entries_of_one_lane_come_in_order_of_time(index: HotIndex) -> None:
    entries = [entry(due_ms=NOW_MS - at) for at in (5, 1, 9, 3, 7)]
    await index.add(entries)
    assert await take(index) == sorted(entries, key=lambda each: each.due_ms)


async def test_entry_added_late_overtakes_entries_due_after_it(index: HotIndex) -> None:
    late, early = entry(due_ms=NOW_MS), entry(due_ms=NOW_MS - 10)
    await index.add([late])
    assert await take(index, NOW_MS - 20) == []
    await index.add([early])
    assert await take(index, NOW_MS - 10) == [early]
    assert await take(index) == [late]


async def test_index_knows_when_the_next_entry_is_ready(index: HotIndex) -> None:
    assert await index.next_ready_ms(ALL, PLENTY) is None
    await index.add([entry(due_ms=NOW_MS + 50), entry(due_ms=NOW_MS + 100, early=1), entry(due_ms=NOW_MS + HOUR)])
    assert await index.next_ready_ms(ALL, PLENTY) == NOW_MS + 100 - LEAD_MS
    await take(index, NOW_MS)
    assert await index.next_ready_ms(ALL, PLENTY) == NOW_MS + 50
    await take(index, NOW_MS + 50)
    assert await index.next_ready_ms(ALL, PLENTY) == NOW_MS + HOUR


async def test_ready_entry_that_was_not_claimed_stays_ready(index: HotIndex) -> None:
    await index.add([entry(due_ms=NOW_MS - at) for at in range(3)])
    await take(index, credit=1)
    ready_ms = await index.next_ready_ms(ALL, PLENTY)
    assert ready_ms is not None
    assert ready_ms <= NOW_MS


async def test_pool_without_credit_does_not_wake_the_dispatcher(index: HotIndex) -> None:
    await index.add([entry(pool="full"), entry(due_ms=NOW_MS + HOUR)])
    credit = {POOL: 10, "full": 0}
    assert await index.claim(NOW_MS, ALL, credit, 10) == []
    assert await index.next_ready_ms(ALL, credit) == NOW_MS + HOUR
    assert await index.next_ready_ms(ALL, {POOL: 10}) == NOW_MS + HOUR


async def test_patience_delays_the_claim_of_early_entries(index: HotIndex) -> None:
    await index.add([entry(due_ms=NOW_MS + LEAD_MS, early=1)])
    assert await index.next_ready_ms(ALL, PLENTY, patience_ms=25) == NOW_MS + 25
    await index.add([entry(due_ms=NOW_MS - 1)])
    assert await index.next_ready_ms(ALL, PLENTY, patience_ms=25) == NOW_MS - 1


# Limits


async def test_claim_returns_no_more_than_its_limit(index: HotIndex) -> None:
    await index.add([entry() for _ in range(5)])
    assert [len(await take(index, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_pool_gets_no_more_than_its_credit(index: HotIndex) -> None:
    await index.add([entry(pool=pool) for pool in ("a", "b", "c") for _ in range(5)])
    claimed = await index.claim(NOW_MS, ALL, {"a": 2, "b": 4, "c": 0}, 100)
    assert Counter(each.pool for each in claimed) == {"a": 2, "b": 4}


async def test_a_pool_that_is_not_named_gets_nothing(index: HotIndex) -> None:
    one = entry(pool="unknown")
    await index.add([one])
    assert await index.claim(NOW_MS, ALL, {}, 100) == []
    assert await index.claim(NOW_MS, ALL, {"unknown": 1}, 100) == [one]


# Turns


async def test_tenants_take_turns_however_much_each_has(index: HotIndex) -> None:
    many = [entry(tenant="big", due_ms=NOW_MS - HOUR) for _ in range(100)]
    await index.add([*many, *[entry(tenant=f"small-{n}") for n in range(9)]])
    claimed = await take(index, credit=20)
    shares = Counter(each.tenant for each in claimed)
    assert len(shares) == 10
    assert shares["big"] == 11


async def test_tenants_take_turns_from_claim_to_claim(index: HotIndex) -> None:
    await index.add([entry(tenant=tenant) for tenant in "abc" for _ in range(10)])
    claimed = [tenant for _ in range(9) for tenant in [(await take(index, credit=1))[0].tenant]]
    assert Counter(claimed) == {"a": 3, "b": 3, "c": 3}
    assert len(set(claimed[:3])) == 3


@pytest.mark.slow
async def test_backlog_of_one_tenant_does_not_delay_another_tenant(index: HotIndex, clock: ManualClock) -> None:
    await index.add([entry(tenant="big", due_ms=NOW_MS - HOUR) for _ in range(20_000)])
    await take(index, credit=100)
    await index.add([entry(tenant="small") for _ in range(200)])
    shares: Counter[str] = Counter()
    for _ in range(5):
        clock.advance(0.02)
        shares.update(each.tenant for each in await take(index, credit=100))
    assert shares == {"big": 300, "small": 200}


async def test_many_tenants_with_a_backlog_all_have_their_turn(index: HotIndex) -> None:
    await index.add([entry(tenant=f"t-{n}", partition=n % 2) for n in range(300) for _ in range(3)])
    claimed = [each for _ in range(90) for each in await take(index, credit=10)]
    assert Counter(each.tenant for each in claimed) == {f"t-{n}": 3 for n in range(300)}


async def test_credit_that_a_tenant_does_not_use_goes_to_others(index: HotIndex) -> None:
    await index.add([entry(tenant="a"), *[entry(tenant="b") for _ in range(20)]])
    assert Counter(each.tenant for each in await take(index, credit=10)) == {"a": 1, "b": 9}


async def test_lanes_share_sixteen_to_four_to_one(index: HotIndex) -> None:
    await index.add([entry(lane=lane) for lane in (HIGH, NORMAL, LOW) for _ in range(100)])
    claimed = await take(index, credit=63)
    assert Counter(each.lane for each in claimed) == {HIGH: 48, NORMAL: 12, LOW: 3}


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 4, 5, 7, 16])
async def test_lanes_share_also_when_little_is_claimed_at_a_time(index: HotIndex, step: int) -> None:
    await index.add([entry(lane=lane) for lane in (HIGH, NORMAL, LOW) for _ in range(2000)])
    claimed = [each for _ in range(21 * 16 // step) for each in await take(index, credit=step)]
    shares = Counter(each.lane for each in claimed)
    assert abs(shares[HIGH] - 16 * 16) <= 16
    assert abs(shares[NORMAL] - 4 * 16) <= 4
    assert abs(shares[LOW] - 16) <= 1


async def test_each_tenant_shares_among_its_own_lanes(index: HotIndex) -> None:
    await index.add([entry(tenant="a", lane=HIGH) for _ in range(50)])
    await index.add([entry(tenant="b", lane=LOW) for _ in range(50)])
    claimed = await take(index, credit=20)
    assert Counter(each.tenant for each in claimed) == {"a": 10, "b": 10}


async def test_a_lane_alone_has_everything(index: HotIndex) -> None:
    await index.add([entry(lane=LOW) for _ in range(50)])
    assert len(await take(index, credit=30)) == 30


# Random histories


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_every_added_entry_is_claimed_once_and_never_early(index: HotIndex, seed: int) -> None:
    random = Random(seed)
    placed: set[Entry] = set()
    claimed: list[Entry] = []
    now_ms = NOW_MS
    for _ in range(200):
        if random.random() < 0.5:
            new = [_any_entry(random, now_ms) for _ in range(random.randrange(6))]
            placed.update(new)
            await index.add(new)
        credit = {pool: random.randrange(4) for pool in "ab" if random.random() < 0.8}
        got = await index.claim(now_ms, ALL, credit, random.randrange(1, 6))
        assert all(each.due_ms - LEAD_MS * each.early <= now_ms for each in got)
        assert all(Counter(each.pool for each in got)[pool] <= credit.get(pool, 0) for pool in "ab")
        claimed += got
        ready_ms = await index.next_ready_ms(ALL, {"a": 1, "b": 1})
        left = [each.due_ms - LEAD_MS * each.early for each in placed - set(claimed)]
        assert (ready_ms is None) == (not left)
        assert ready_ms is None or ready_ms <= min(left)
        now_ms += random.randrange(200)
    claimed += await index.claim(now_ms + HOUR, ALL, {"a": 10_000, "b": 10_000}, 100_000)
    assert len(claimed) == len(set(claimed))
    assert set(claimed) == placed


def _any_entry(random: Random, now_ms: int) -> Entry:
    return entry(
        due_ms=now_ms + random.randrange(-500, 2_000),
        pool=random.choice("ab"),
        tenant=random.choice("xyz"),
        lane=random.randrange(3),
        early=random.randrange(2),
        kind=random.choice(list(Kind)),
    )
