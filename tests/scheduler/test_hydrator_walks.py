"""Rounds of a hydrator: how far ahead it fills the index, and when it begins again from the head."""

from collections.abc import AsyncIterator

import pytest

from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS
from noonday.scheduler.hydrator import Hydrator
from tests.support.crank import Crank
from tests.support.factories import MINUTE, NOW_MS, POOL, job

AHEAD_MS = 10 * MINUTE


class Bench:
    """A hydrator that owns some partitions, by default all of them."""

    def __init__(self, store: SqliteStore) -> None:
        self.crank, self.index = Crank(store), MemoryHotIndex(0)  # type: ignore[arg-type]
        self.owned = range(PARTITIONS)
        self.tracked: list[Entry] = []
        self.hydrator = Hydrator(
            store.firing, self.index, lambda: self.owned, AHEAD_MS, lambda entry: entry in self.tracked
        )

    async def add(self, *minutes: int) -> list[str]:
        """Store one-shots that are due in some minutes. Returns their ids."""
        jobs = [job(now_ms=NOW_MS + minute * MINUTE) for minute in minutes]
        await self.crank.add(*jobs)
        return [each.id for each in jobs]

    async def round(self, at_ms: int = NOW_MS) -> int:
        return await self.hydrator.run_once(at_ms)

    async def placed(self) -> list[str]:
        """Claim everything from the index, by due time."""
        claimed = await self.index.claim(NOW_MS + 10**9, range(PARTITIONS), {POOL: 1_000}, 1_000)
        return [entry.key for entry in sorted(claimed, key=lambda entry: entry.due_ms)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield Bench(store)
    await store.close()


async def test_entries_due_within_the_next_minutes_are_placed(bench: Bench) -> None:
    soon, later, _much_later = await bench.add(0, 9, 11)
    assert await bench.round() == 2
    assert await bench.placed() == [soon, later]


async def test_next_round_continues_where_the_last_one_ended(bench: Bench) -> None:
    await bench.add(0, 9)
    await bench.round()
    await bench.placed()
    (new,) = await bench.add(12)
    assert await bench.round(NOW_MS + 3 * MINUTE) == 1
    assert await bench.placed() == [new]


async def test_only_owned_partitions_are_filled(bench: Bench) -> None:
    await bench.add(*range(5))
    bench.owned = range(0)
    assert await bench.round() == 0
    bench.owned = range(PARTITIONS)
    assert await bench.round() == 5


async def test_index_that_lost_its_memory_is_filled_from_the_head(bench: Bench) -> None:
    ids = await bench.add(0, 9)
    await bench.round()
    await bench.index.forget(range(PARTITIONS))
    assert await bench.round() == 2
    assert await bench.placed() == ids


async def test_partitions_that_another_instance_had_are_walked_again(bench: Bench) -> None:
    ids = await bench.add(0, 9)
    await bench.round()
    await bench.placed()
    bench.hydrator.walk_again(range(PARTITIONS))
    await bench.round()
    assert await bench.placed() == ids


async def test_entry_that_is_being_fired_is_not_placed_again(bench: Bench) -> None:
    tracked, other = await bench.add(0, 1)
    bench.tracked = [entry for entry in await bench.crank.timeline() if entry.key == tracked]
    await bench.round()
    assert await bench.placed() == [other]
