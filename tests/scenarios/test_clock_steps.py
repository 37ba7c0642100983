"""The wall clock is set by an hour, under a running engine or under a stopped one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from noonday.model.job import CatchUp, CatchUpPolicy, JobType
from noonday.model.view import JobView
from tests.scenarios.inside import Inside
from tests.scenarios.process import until

HOUR, TEN_MINUTES = timedelta(hours=1), timedelta(minutes=10)
NEXT = datetime(2030, 1, 15, 12, 10, tzinfo=UTC)
"""The first time of a job that runs each ten minutes; the scenarios begin more than nine minutes before it."""


async def each_ten_minutes(
    inside: Inside, policy: CatchUpPolicy = CatchUpPolicy.LATEST, handler: str = "note"
) -> JobView:
    return await inside.create(handler, type=JobType.CRON, schedule="*/10 * * * *", catch_up=CatchUp(policy))


@pytest.mark.slow
async def test_each_job_catches_up_by_its_policy_after_a_step_forward(tmp_path: Path) -> None:
    async with Inside(tmp_path).open() as inside:
        jobs = {policy: await each_ten_minutes(inside, policy) for policy in CatchUpPolicy}
        once = await inside.create(run_at=NEXT)

        inside.clock.step(HOUR.total_seconds())
        await until(lambda: len(inside.runs(jobs[CatchUpPolicy.ALL])) == 6)
        await until(lambda: inside.runs(once))
        await until(lambda: _is_decided(inside, jobs.values()))

        assert await inside.occurrences(jobs[CatchUpPolicy.ALL]) == [("FIRED", 1)] * 6
        assert await inside.occurrences(jobs[CatchUpPolicy.LATEST]) == [("MISSED", 5), ("FIRED", 1)]
        assert await inside.occurrences(jobs[CatchUpPolicy.NONE]) == [("MISSED", 6)]
        assert [ran.scheduled_at for ran in inside.runs(once)] == [NEXT]
        for job in jobs.values():
            assert (await inside.job(job)).next_fire_at == NEXT + HOUR
            assert (await inside.job(job)).next_fire_at > inside.clock.now


@pytest.mark.slow
async def test_after_a_step_back_nothing_fires_twice_and_the_next_time_is_by_the_wall_clock(tmp_path: Path) -> None:
    async with Inside(tmp_path).open() as inside:
        job = await each_ten_minutes(inside, CatchUpPolicy.ALL)
        inside.clock.set(NEXT)
        await until(lambda: inside.runs(job))

        inside.clock.step(-HOUR.total_seconds())
        soon = await inside.create(type=JobType.DELAYED, delay_sec=0.3)
        await until(lambda: inside.runs(soon))
        inside.clock.set(NEXT)
        await inside.came_round()

        assert [ran.scheduled_at for ran in inside.runs(job)] == [NEXT]
        assert (await inside.job(job)).next_fire_at == NEXT + TEN_MINUTES
        inside.clock.set(NEXT + TEN_MINUTES)
        await until(lambda: len(inside.runs(job)) == 2)
        assert [ran.scheduled_at for ran in inside.runs(job)] == [NEXT, NEXT + TEN_MINUTES]
        assert all(ran.at_ms >= ran.due_ms for ran in inside.ran)


@pytest.mark.slow
async def test_early_dispatch_waits_for_its_instant_by_the_wall_clock(tmp_path: Path) -> None:
    async with Inside(tmp_path).open(scheduler_lead_ms=60_000) as inside:
        job = await inside.create(type=JobType.DELAYED, delay_sec=40)
        await until(lambda: inside.engine.worker._backlog.next_due_ms)

        inside.clock.step(-HOUR.total_seconds())
        await inside.came_round()
        assert inside.ran == []
        inside.clock.step(HOUR.total_seconds())
        await inside.came_round()
        assert inside.ran == []
        inside.clock.step(40)
        await until(lambda: inside.ran, within_sec=20)

        assert [(ran.job, ran.dispatch) for ran in inside.ran] == [(job.job_id, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("hours", [1, -1])
async def test_execution_that_runs_while_the_clock_is_set_runs_once(tmp_path: Path, hours: int) -> None:
    async with Inside(tmp_path).open() as inside:
        running = await inside.create("wait")
        await until(lambda: inside.ran)

        inside.clock.step(hours * 3600)
        await until(lambda: _has_ticked(inside))
        await inside.came_round()
        inside.go.set()
        await until(lambda: _has_ended(inside, running))

        assert [ran.dispatch for ran in inside.ran] == [1]


@pytest.mark.slow
async def test_run_that_has_just_begun_is_not_dispatched_again_by_a_step_forward(tmp_path: Path) -> None:
    async with Inside(tmp_path).open(run=False) as inside:
        await inside.tick()
        await inside.create("wait")
        await inside.turn()
        assert len(inside.ran) == 1

        inside.clock.step(3600)
        await inside.tick()
        await inside.turn()
        inside.go.set()
        await inside.turn()

        assert len(inside.ran) == 1
        assert inside.query("SELECT state, dispatch FROM executions") == [(5, 1)]


@pytest.mark.slow
async def test_dispatch_that_waits_in_a_worker_when_the_clock_is_set_is_returned_and_runs_at_once(
    tmp_path: Path,
) -> None:
    async with Inside(tmp_path).open(run=False, worker_concurrency=1) as inside:
        await inside.tick()
        await inside.create("wait")
        await inside.turn()
        waiting = await inside.create("hurry")
        await inside.turn()
        assert len(inside.ran) == 1

        inside.clock.step(3600)
        inside.go.set()
        for _ in range(4):
            await inside.turn()

        assert [(ran.job, ran.dispatch) for ran in inside.ran[1:]] == [(waiting.job_id, 2)]


async def _has_ticked(inside: Inside) -> bool:
    """Whether the recorder has noted the time in the store since the clock was set."""
    place = await inside.store.executions.find_checkpoint(0)
    return abs(place.tick_ms - inside.clock.now_ms()) < 600_000  # type: ignore[no-any-return]


async def _is_decided(inside: Inside, jobs: object) -> bool:
    """Whether no occurrence of these jobs is due any more."""
    return all([(await inside.job(job)).next_fire_at > inside.clock.now for job in jobs])  # type: ignore[attr-defined]


async def _has_ended(inside: Inside, job: JobView) -> bool:
    return (await inside.job(job)).state == "COMPLETED"
