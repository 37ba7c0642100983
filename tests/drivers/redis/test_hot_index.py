import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from noonday.drivers.redis.connection import Connection
from noonday.drivers.redis.hot_index import READ_SEC, RedisHotIndex
from noonday.model.errors import IndexUnavailable, Unavailable
from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS
from noonday.model.turns import MOST_AT_ONCE
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.factories import HOUR, NOW_MS, POOL, SECOND, entry
from tests.support.tcp_cutter import Cutter

ALL = range(PARTITIONS)
PLENTY = {POOL: 100_000}
LEAD_MS = 300

NewIndex = Callable[..., RedisHotIndex]


@pytest.fixture
async def new_index(connection: Connection, clock: ManualClock, prefix: str) -> AsyncIterator[NewIndex]:
    """Open an index. Each call makes the index of one process."""
    async with AsyncExitStack() as opened:

        def one_more(way: Connection = connection, on_placed: Callable[[], None] = lambda: None) -> RedisHotIndex:
            index = RedisHotIndex(way, clock, LEAD_MS, prefix, on_placed=on_placed)
            opened.push_async_callback(index.close)
            return index

        yield one_more


async def take(index: RedisHotIndex, now_ms: int = NOW_MS, limit: int = 100_000) -> list[Entry]:
    return await index.claim(now_ms, ALL, PLENTY, limit)


async def hears(index: RedisHotIndex, connection: Connection, prefix: str, of: int = 1) -> None:
    """Wait until the index owns everything, and is one of `of` subscribers to announcements."""
    await take(index, 0)
    channel = f"{prefix}:placed"

    async def subscribed() -> bool:
        return (await connection.ask("PUBSUB", "NUMSUB", channel, failing=Unavailable))[1] == of

    await eventually(subscribed)
    # After it has subscribed, it reads once the entries that it may have missed.
    await take(index, 0)


async def test_owner_is_notified_of_entries_of_another_process(
    new_index: NewIndex, connection: Connection, prefix: str
) -> None:
    woken = asyncio.Event()
    owner, other = new_index(on_placed=woken.set), new_index()
    await hears(owner, connection, prefix)
    one = entry()
    await other.add([one])
    await asyncio.wait_for(woken.wait(), 60)
    assert await owner.next_ready_ms(ALL, PLENTY) == NOW_MS
    assert await take(owner) == [one]


async def test_entry_that_is_not_due_soon_is_not_announced(
    new_index: NewIndex, connection: Connection, prefix: str, clock: ManualClock
) -> None:
    woken = asyncio.Event()
    owner, other = new_index(on_placed=woken.set), new_index()
    await hears(owner, connection, prefix)
    later, now = entry(due_ms=NOW_MS + HOUR), entry()
    await other.add([later])
    await other.add([now])
    await asyncio.wait_for(woken.wait(), 60)
    assert await owner.next_ready_ms(ALL, PLENTY) == NOW_MS
    assert await take(owner, NOW_MS + HOUR) == [now]
    clock.advance(READ_SEC)
    assert await owner.next_ready_ms(ALL, PLENTY) == NOW_MS + HOUR
    assert await take(owner, NOW_MS + HOUR) == [later]


async def test_missed_announcement_is_found_within_a_second(
    new_index: NewIndex, connection: Connection, prefix: str, clock: ManualClock
) -> None:
    owner, other = new_index(), new_index()
    await hears(owner, connection, prefix)
    await owner.close()
    one = entry()
    await other.add([one])
    clock.advance(READ_SEC)
    assert await take(owner) == [one]


async def test_owner_reads_the_index_after_a_reconnect(
    new_index: NewIndex,
    behind_cutter: Connection,
    connection: Connection,
    cutter: Cutter,
    prefix: str,
    clock: ManualClock,
) -> None:
    owner, other = new_index(behind_cutter), new_index()
    await hears(owner, connection, prefix)
    await cutter.refuse()
    await eventually(lambda: clock.sleepers)
    one = entry()
    await other.add([one])
    await cutter.heal()
    clock.advance(0.5)
    assert await eventually(lambda: take(owner)) == [one]


async def test_entries_in_the_memory_of_a_dead_owner_are_missing(new_index: NewIndex) -> None:
    entries = [entry(partition=n % 4) for n in range(100)]
    dead, heir = new_index(), new_index()
    await dead.add(entries)
    claimed = await take(dead, limit=1)
    assert len(claimed) == 1
    assert await dead.missing(entries) == claimed
    missing = await heir.missing(entries)
    assert 1 < len(missing) < 100
    await heir.add(missing)
    assert set(await take(heir)) == set(entries)


async def test_two_owners_of_one_partition_never_claim_the_same_entry(new_index: NewIndex) -> None:
    first, second = new_index(), new_index()
    entries = [entry() for _ in range(2_000)]
    await first.add(entries)
    claims = await asyncio.gather(*[take(index, limit=100) for _ in range(20) for index in (first, second)])
    claimed = [each for some in claims for each in some]
    assert len(claimed) == len(set(claimed)) > 1_000
    assert set(claimed) <= set(entries)


async def test_entries_returned_to_redis_are_announced_to_the_next_owner(
    new_index: NewIndex, connection: Connection, prefix: str
) -> None:
    woken = asyncio.Event()
    former, heir = new_index(), new_index(on_placed=woken.set)
    entries = [entry(partition=3) for _ in range(5)]
    await former.add(entries)
    claimed = await take(former, limit=1)
    await hears(heir, connection, prefix, of=2)
    await former.forget(ALL)
    await asyncio.wait_for(woken.wait(), 60)
    assert set(await take(heir)) == set(entries) - set(claimed)


# Lost data


async def test_flushed_index_has_other_generations_and_lacks_every_entry(
    new_index: NewIndex, connection: Connection
) -> None:
    index = new_index()
    entries = [entry(), entry(due_ms=NOW_MS + HOUR)]
    generations = await index.generations(ALL)
    await index.add(entries)
    await connection.ask("FLUSHALL", failing=Unavailable)
    assert await take(index) == []
    new = await index.generations(ALL)
    assert all(new[each] != generations[each] for each in ALL)
    assert await index.missing(entries) == entries
    await index.add(entries)
    assert set(await take(index, NOW_MS + HOUR)) == set(entries)


@pytest.mark.parametrize("part", ["", f":h:{POOL}"])
async def test_entries_that_no_head_leads_to_any_more_are_missing(
    new_index: NewIndex, connection: Connection, prefix: str, part: str
) -> None:
    """A server may evict single keys to save memory."""
    index = new_index()
    entries = [entry(partition=5, due_ms=NOW_MS - at) for at in range(3)]
    await index.add(entries)
    assert await connection.ask("DEL", f"{prefix}:{{p:5}}{part}", failing=Unavailable) == 1
    assert await index.missing(entries) == entries
    await index.add(entries[:1])
    assert set(await take(index)) == set(entries)


async def test_unreadable_entry_does_not_block_the_others(
    new_index: NewIndex, connection: Connection, prefix: str
) -> None:
    index = new_index()
    one, other = entry(partition=5), entry(partition=5)
    await index.add([one, other])
    queue = f"{prefix}:{{p:5}}:q:{len(POOL)}:{POOL}:1:{one.tenant}"
    assert await connection.ask("ZADD", queue, 0, "\x00nonsense", failing=Unavailable) == 1
    assert set(await take(index)) == {one, other}


async def test_unreadable_announcement_is_ignored(new_index: NewIndex, connection: Connection, prefix: str) -> None:
    woken = asyncio.Event()
    owner, other = new_index(on_placed=woken.set), new_index()
    await hears(owner, connection, prefix)
    await connection.ask("PUBLISH", f"{prefix}:placed", "nonsense", failing=Unavailable)
    await other.add([entry()])
    await asyncio.wait_for(woken.wait(), 60)


async def test_unreachable_server_raises_unavailable(
    new_index: NewIndex, behind_cutter: Connection, cutter: Cutter
) -> None:
    index = new_index(behind_cutter)
    one = entry()
    await index.add([one, entry()])
    assert len(await take(index, limit=1)) == 1
    await cutter.cut()
    for call in (index.add([entry()]), index.missing([entry()]), index.generations(ALL)):
        with pytest.raises(IndexUnavailable):
            await call
    await index.forget(ALL)
    with pytest.raises(IndexUnavailable):
        await take(index)


# Names and sizes


async def test_a_queue_of_thousands_in_one_partition(new_index: NewIndex) -> None:
    index = new_index()
    entries = [entry(partition=7, due_ms=NOW_MS - SECOND + at // 10) for at in range(9_500)]
    await index.add(entries)
    assert await index.missing(entries) == []
    claimed = [each for _ in range(10) for each in await take(index, limit=1_000)]
    assert [each.due_ms for each in claimed] == sorted(each.due_ms for each in entries)
    assert set(claimed) == set(entries)


async def test_names_that_look_like_parts_of_others_are_kept_apart(new_index: NewIndex) -> None:
    index = new_index()
    names = [("a", "1:b"), ("a:1", "b"), ("a:1:b", ""), ("b", "}{:1:é"), ("1:b", "a")]
    entries = [entry(pool=pool, tenant=tenant, partition=0) for pool, tenant in names for _ in range(3)]
    await index.add(entries)
    for pool in {pool for pool, _ in names}:
        claimed = await index.claim(NOW_MS, ALL, {pool: 100}, 100)
        assert set(claimed) == {each for each in entries if each.pool == pool}


async def test_little_is_taken_out_of_redis_for_a_pool_with_little_credit(new_index: NewIndex) -> None:
    owner, other = new_index(), new_index()
    entries = [entry(partition=n % 8) for n in range(5_000)]
    await owner.add(entries)
    for _ in range(5):
        assert len(await owner.claim(NOW_MS, range(8), {POOL: 10}, 1_000)) == 10
    assert len(await other.missing(entries)) < 200


async def test_entries_in_memory_are_bounded_for_any_backlog(new_index: NewIndex, clock: ManualClock) -> None:
    owner, other = new_index(), new_index()
    entries = [entry(partition=n % 8, tenant=f"t-{n % 5}") for n in range(20_000)]
    await owner.add(entries)
    claimed: Counter[str] = Counter()
    for _ in range(30):
        clock.advance(0.02)
        claimed.update(each.tenant for each in await owner.claim(NOW_MS, range(8), PLENTY, 100))
    assert claimed.total() == 3_000
    assert all(abs(count - 600) <= MOST_AT_ONCE for count in claimed.values())
    assert len(await other.missing(entries)) - claimed.total() < 1_000
