"""A stop of an hour, and the occurrences that are caught up when the process is back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonday.model.job import CatchUp, CatchUpPolicy, JobType, Overlap
from tests.scenarios.inside import Inside
from tests.scenarios.process import until

HOUR = timedelta(hours=1)
FIRST = datetime(2030, 1, 15, 12, 10, tzinfo=UTC)
TIMES = [FIRST + timedelta(minutes=10 * n) for n in range(6)]


@pytest.mark.slow
async def test_each_job_catches_up_a_stop_of_an_hour_by_its_policy(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    ten_minutes = {"type": JobType.CRON, "schedule": "*/10 * * * *"}
    async with inside.open():
        all_ = await inside.create(**ten_minutes, catch_up=CatchUp(CatchUpPolicy.ALL))
        latest = await inside.create(**ten_minutes, catch_up=CatchUp(CatchUpPolicy.LATEST))
        none = await inside.create(**ten_minutes, catch_up=CatchUp(CatchUpPolicy.NONE))
        window = await inside.create(**ten_minutes, catch_up=CatchUp(CatchUpPolicy.ALL, window_sec=1500))
        every = await inside.create(type=JobType.INTERVAL, every_sec=600, catch_up=CatchUp(CatchUpPolicy.ALL))
        once = await inside.create(run_at=FIRST)
        expiring = await inside.create(run_at=FIRST, start_deadline_sec=60)

    inside.clock.let_pass(HOUR.total_seconds())
    async with inside.open():
        await until(lambda: len(inside.ran) == 6 + 1 + 0 + 3 + 6 + 1)
        await inside.came_round()

        assert sorted(ran.scheduled_at for ran in inside.runs(all_)) == TIMES
        assert sorted(ran.scheduled_at for ran in inside.runs(every)) == TIMES
        assert [ran.scheduled_at for ran in inside.runs(latest)] == TIMES[-1:]
        assert await inside.occurrences(latest) == [("MISSED", 5), ("FIRED", 1)]
        assert inside.runs(none) == []
        assert await inside.occurrences(none) == [("MISSED", 6)]
        assert sorted(ran.scheduled_at for ran in inside.runs(window)) == TIMES[-3:]
        assert await inside.occurrences(window) == [("MISSED", 3), ("FIRED", 1), ("FIRED", 1), ("FIRED", 1)]
        assert [ran.scheduled_at for ran in inside.runs(once)] == [FIRST]
        assert inside.runs(expiring) == []
        assert await inside.occurrences(expiring) == [("EXPIRED", 1)]
        for job in (all_, latest, none, window, every):
            assert (await inside.job(job)).next_fire_at == FIRST + HOUR


@pytest.mark.slow
async def test_catch_up_respects_overlap_and_max_runs(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    everything = {"type": JobType.CRON, "schedule": "*/10 * * * *", "catch_up": CatchUp(CatchUpPolicy.ALL)}
    async with inside.open():
        skipping = await inside.create("wait", **everything, overlap=Overlap.SKIP)
        buffered = await inside.create("note", **everything, overlap=Overlap.BUFFER_ALL)
        thrice = await inside.create("note", **everything, max_runs=3)

    inside.clock.let_pass(HOUR.total_seconds())
    async with inside.open():
        await until(lambda: len(inside.runs(buffered)) == 6)
        await until(lambda: len(inside.runs(thrice)) == 3)
        await until(lambda: inside.runs(skipping))
        await inside.came_round()
        inside.go.set()

        assert [ran.scheduled_at for ran in inside.runs(buffered)] == TIMES
        assert sorted(ran.scheduled_at for ran in inside.runs(thrice)) == TIMES[:3]
        assert [ran.scheduled_at for ran in inside.runs(skipping)] == TIMES[:1]
        assert sum(count for outcome, count in await inside.occurrences(skipping) if outcome == "SKIPPED") == 5


@pytest.mark.slow
async def test_a_retry_that_fell_into_the_stop_is_made_as_soon_as_the_process_is_back(tmp_path: Path) -> None:
    inside = Inside(tmp_path)
    async with inside.open():
        job = await inside.create("fail")
        await until(lambda: inside.query("SELECT 1 FROM timeline WHERE kind = 1"))

    inside.clock.let_pass(HOUR.total_seconds())
    async with inside.open():
        await until(lambda: len(inside.runs(job)) == 2)
