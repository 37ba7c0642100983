"""Two processes with different time-zone data on one store."""

from collections.abc import AsyncIterator

import pytest

from noonday.drivers.sqlite.connection import MEMORY, FileOptions
from noonday.drivers.sqlite.store import SqliteStore, open_store
from noonday.model.change import Change
from noonday.model.firing import Fire
from noonday.model.job import JobType
from noonday.scheduler.replanner import PAGE, REQUEST_EVERY_SEC, Replanner
from tests.support.clock import ManualClock
from tests.support.crank import Crank
from tests.support.factories import HOUR, NOW_MS, job, spec


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = open_store(MEMORY, FileOptions(), lead_ms=0)
    yield store
    await store.close()


async def test_processes_with_different_data_do_not_undo_each_other(store: SqliteStore) -> None:
    clock, crank = ManualClock(), Crank(store)
    jobs = [job(spec(type=JobType.CRON, schedule="0 9 * * *", timezone="Europe/Oslo")) for _ in range(PAGE + 5)]
    await crank.add(*jobs)
    old, new = Replanner(store.firing, clock, "2030a"), Replanner(store.firing, clock, "2030b")
    for _ in range(4):
        await new.run_once(NOW_MS)
        await old.run_once(NOW_MS)
    assert await store.firing.zone_data() == "2030b"
    looks = [await each.run_once(NOW_MS) for each in (new, old) * 5]
    assert looks == [0] * 10


async def test_jobs_planned_with_older_zone_data_are_planned_again_with_the_newest(store: SqliteStore) -> None:
    clock, crank = ManualClock(), Crank(store)
    one = job(spec(type=JobType.CRON, schedule="0 9 * * *", timezone="Europe/Oslo"))
    await crank.add(one)
    right = await crank.fire_row(one)
    assert right is not None
    old, new = Replanner(store.firing, clock, "2030a"), Replanner(store.firing, clock, "2030b")
    await new.run_once(NOW_MS)
    await old.run_once(NOW_MS)
    await new.run_once(NOW_MS)
    await crank.change(one, Change(fire=Fire(right.nominal_ms + HOUR, right.nominal_ms + HOUR)))
    clock.advance(REQUEST_EVERY_SEC)
    await old.run_once(NOW_MS)
    await new.run_once(NOW_MS)
    assert await crank.fire_row(one) == right
