"""Walks of the timeline ahead of time, under any clock error."""

from collections.abc import AsyncIterator

import pytest

from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.ids import PARTITIONS
from noonday.scheduler.hydrator import Hydrator
from tests.support.crank import Crank
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, job


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


async def test_job_stored_after_the_clock_was_a_day_ahead_is_indexed_before_its_time(store: SqliteStore) -> None:
    crank, index = Crank(store), MemoryHotIndex(0)
    hydrator = Hydrator(store.firing, index, lambda: range(PARTITIONS), 10 * MINUTE, lambda entry: False)
    far, near = job(anchor_ms=NOW_MS + DAY), job(anchor_ms=NOW_MS + HOUR)
    await crank.add(far)
    await hydrator.run_once(NOW_MS)
    await hydrator.run_once(NOW_MS + DAY)
    assert index.size() == 1
    await hydrator.run_once(NOW_MS + 1)
    await crank.add(near)
    await hydrator.run_once(NOW_MS + HOUR - 5 * MINUTE)
    assert index.size() == 2
