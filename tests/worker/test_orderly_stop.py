"""The orderly stop of a worker, step by step on parts in memory."""

import asyncio

from noonday.model.execution import Outcome
from noonday.model.message import Bye, Report
from noonday.worker.closing import FINAL_REPORT_SEC, OrderlyStop
from noonday.worker.run import Run
from tests.worker.parts import POOL, Parts

DRAIN_SEC, GRACE_SEC = 20.0, 5.0


class Stopping:
    """A worker with its orderly stop."""

    def __init__(self) -> None:
        self.parts = it = Parts()
        self.stop = OrderlyStop(
            it.rounds,
            it.starter,
            it.active,
            it.ended,
            it.reporter,
            it.acks,
            it.heartbeats,
            it.membership,
            it.clock,
            GRACE_SEC,
        )

    async def close(self, drain_sec: float = DRAIN_SEC) -> float:
        """Close the worker while time passes. Returns how many seconds it took."""
        clock = self.parts.clock
        began_at, closing = clock.monotonic(), asyncio.create_task(self.stop.close(drain_sec))
        while not closing.done():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            clock.advance(0.05)
        await closing
        return clock.monotonic() - began_at

    async def reports(self) -> list[Report]:
        return [each for each in await self.parts.bus.entries() if isinstance(each, Report)]


async def stopping() -> Stopping:
    it = Stopping()
    await it.parts.open()
    return it


def end(run: Run) -> None:
    """Let a handler that waits return."""
    assert run.task is not None
    run.task.cancel()


async def test_idle_worker_leaves_its_pools_and_says_bye_at_once() -> None:
    it = await stopping()
    assert await it.close() < 1
    assert await it.parts.bus.credit() == {}
    assert isinstance((await it.parts.bus.entries())[-1], Bye)


async def test_run_that_does_not_end_within_the_drain_time_is_interrupted() -> None:
    """It is dispatched again without using up an attempt."""
    it = await stopping()
    run = await it.parts.started()
    took_sec = await it.close()
    (report,) = await it.reports()
    assert (report.execution_id, report.outcome) == (run.dispatch.execution_id, Outcome.INTERRUPTED)
    assert DRAIN_SEC <= took_sec < DRAIN_SEC + GRACE_SEC


async def test_worker_stops_as_soon_as_its_runs_have_ended() -> None:
    it = await stopping()
    run = await it.parts.started()
    end(run)
    assert await it.close() < DRAIN_SEC
    assert [report.execution_id for report in await it.reports()] == [run.dispatch.execution_id]


async def test_dispatch_that_has_not_started_is_returned() -> None:
    it = await stopping()
    run = await it.parts.claimed()
    it.parts.backlog.admit([run], it.parts.clock.now_ms())
    await it.close()
    (report,) = await it.reports()
    assert (report.execution_id, report.outcome, report.started_ms) == (
        run.dispatch.execution_id,
        Outcome.INTERRUPTED,
        0,
    )


async def test_bye_follows_all_reports() -> None:
    """After its Bye, a recorder takes the worker for gone."""
    it = await stopping()
    for _ in range(2):
        await it.parts.started()
    await it.close()
    kinds = [type(each) for each in await it.parts.bus.entries() if isinstance(each, Report | Bye)]
    assert kinds == [Report, Report, Bye]


async def test_stop_is_bounded_although_nothing_can_be_reported() -> None:
    it = await stopping()
    await it.parts.started()
    it.parts.bus.is_away = True
    took_sec = await it.close(drain_sec=1.0)
    assert took_sec < 1.0 + GRACE_SEC + 2 * FINAL_REPORT_SEC + 1
    assert await it.reports() == []


async def test_retired_worker_takes_nothing_more_and_its_runs_continue() -> None:
    it = await stopping()
    run = await it.parts.started()
    await it.stop.retire()
    assert not it.parts.rounds.taking
    assert POOL not in await it.parts.bus.credit()
    assert it.parts.active.not_ended() == [run]
    end(run)
