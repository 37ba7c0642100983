import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from noonday.drivers.redis.connection import Connection
from noonday.drivers.redis.hinted_index import HintedHotIndex
from noonday.model.errors import IndexUnavailable, Unavailable
from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS, POOL, entry
from tests.support.tcp_cutter import Cutter

LEFT, RIGHT = range(PARTITIONS // 2), range(PARTITIONS // 2, PARTITIONS)
PLENTY = {POOL: 100_000}

NewIndex = Callable[..., HintedHotIndex]


@pytest.fixture
async def new_index(connection: Connection, clock: ManualClock, prefix: str) -> AsyncIterator[NewIndex]:
    """Open an index. Each call makes the index of one process."""
    async with AsyncExitStack() as opened:

        def one_more(way: Connection = connection, on_placed: Callable[[], None] = lambda: None) -> HintedHotIndex:
            index = HintedHotIndex(way, clock, 300, prefix, on_placed=on_placed)
            opened.push_async_callback(index.close)
            return index

        yield one_more


async def take(index: HintedHotIndex, partitions: range) -> list[Entry]:
    return await index.claim(NOW_MS, partitions, PLENTY, 100_000)


async def test_entry_added_by_another_process_reaches_and_wakes_its_owner(new_index: NewIndex) -> None:
    woken = asyncio.Event()
    api, left, right = new_index(), new_index(), new_index(on_placed=woken.set)
    await left.generations(LEFT)
    await right.generations(RIGHT)
    entries = [entry() for _ in range(3_500)]
    await api.add(entries)
    await asyncio.wait_for(woken.wait(), 60)
    claimed: list[Entry] = []

    async def all_claimed() -> bool:
        claimed.extend(await take(left, LEFT) + await take(right, RIGHT))
        return len(claimed) == len(entries)

    await eventually(all_claimed)
    assert set(claimed) == set(entries)


async def test_entry_added_by_its_owner_needs_no_hint(new_index: NewIndex, connection: Connection, prefix: str) -> None:
    woken = asyncio.Event()
    owner = new_index(on_placed=woken.set)
    await owner.generations(LEFT)
    one = entry(partition=1)
    await owner.add([one])
    assert await take(owner, LEFT) == [one]
    assert not woken.is_set()


async def test_process_that_only_adds_entries_does_not_subscribe(
    new_index: NewIndex, connection: Connection, prefix: str
) -> None:
    async def listeners() -> int:
        answer = await connection.ask("PUBSUB", "NUMSUB", f"{prefix}:hints", failing=Unavailable)
        return int(answer[1])

    api, owner = new_index(), new_index()
    await api.add([entry()])
    assert await listeners() == 0
    await owner.generations(LEFT)
    assert await listeners() == 1


async def test_hints_for_partitions_that_were_forgotten_are_left_to_others(new_index: NewIndex) -> None:
    woken = asyncio.Event()
    api, owner = new_index(), new_index(on_placed=woken.set)
    await owner.generations(LEFT)
    await owner.forget([1])
    foreign, ours = entry(partition=1), entry(partition=2)
    await api.add([foreign])
    await api.add([ours])
    await asyncio.wait_for(woken.wait(), 60)
    assert await owner.missing([foreign, ours]) == [foreign]


async def test_unreadable_hint_is_ignored(new_index: NewIndex, connection: Connection, prefix: str) -> None:
    woken = asyncio.Event()
    api, owner = new_index(), new_index(on_placed=woken.set)
    await owner.generations(LEFT)
    await connection.ask("PUBLISH", f"{prefix}:hints", "nonsense", failing=Unavailable)
    await api.add([entry(partition=1)])
    await asyncio.wait_for(woken.wait(), 60)


async def test_hints_arrive_again_after_a_reconnect(
    new_index: NewIndex, behind_cutter: Connection, cutter: Cutter, clock: ManualClock
) -> None:
    api, owner = new_index(), new_index(behind_cutter)
    await owner.generations(LEFT)
    await cutter.refuse()
    await eventually(lambda: clock.sleepers)
    await api.add([entry(partition=1)])
    await cutter.heal()
    clock.advance(0.5)
    one = entry(partition=1)

    async def placed() -> bool:
        await api.add([one])
        return not await owner.missing([one])

    await eventually(placed)
    assert await take(owner, LEFT) == [one]


async def test_a_server_that_falls_silent_is_left_for_a_new_connection(
    new_index: NewIndex, behind_cutter: Connection, cutter: Cutter, clock: ManualClock
) -> None:
    owner = new_index(behind_cutter)
    await owner.generations(LEFT)
    await cutter.cut()
    await eventually(lambda: clock.sleepers)


async def test_owner_without_redis_has_the_entries_it_adds_itself(
    new_index: NewIndex, behind_cutter: Connection, cutter: Cutter
) -> None:
    await cutter.cut()
    owner = new_index(behind_cutter)
    await owner.generations(LEFT)
    ours, foreign = entry(partition=1), entry(partition=200)
    await owner.add([ours])
    with pytest.raises(IndexUnavailable):
        await owner.add([foreign])
    assert await take(owner, LEFT) == [ours]
