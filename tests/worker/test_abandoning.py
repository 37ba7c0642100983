"""Runs that ignore their end are reported nevertheless, and replaced up to a limit; their late results are dropped."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.worker.context import Context
from tests.worker import process_handlers
from tests.worker.rig import PATIENCE_SEC, Rig, handler, rig

GRACE_SEC = 5.0


class Stubborn:
    """Handlers that ignore cancellation, and go on until the test releases them."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered: list[str] = []

    def thread(self, ctx: Context) -> str:
        self.entered.append(ctx.execution_id)
        self.go.wait()
        return "too late"

    async def swallow(self, ctx: Context) -> str:
        self.entered.append(ctx.execution_id)
        while not self.go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "too late"

    async def block(self, ctx: Context) -> str:
        self.entered.append(ctx.execution_id)
        self.go.wait()
        return "too late"

    def quick(self, ctx: Context) -> str:
        return "done"


@pytest.fixture
def stubborn() -> Stubborn:
    return Stubborn()


def advance(it: Rig, seconds: float) -> None:
    clock: Any = it.clock
    clock.advance(seconds)


async def abandon(it: Rig, stubborn: Stubborn, name: str, **fields: Any) -> Any:
    """Publish a run that ignores its end, let its timeout and the grace pass, and return its report."""
    before = len(stubborn.entered)
    made = await it.publish(name, timeout_sec=4, **fields)
    await it.until(lambda: len(stubborn.entered) > before)
    advance(it, 4)
    await it.turn()
    advance(it, GRACE_SEC)
    return await it.ended(made)


@pytest.mark.parametrize(
    ("name", "mode"), [("thread", Mode.THREAD), ("swallow", Mode.ASYNC), ("block", Mode.ASYNC)], ids=str
)
async def test_a_run_that_ignores_its_timeout_is_timed_out_after_the_grace(
    stubborn: Stubborn, name: str, mode: Mode
) -> None:
    async with rig([handler(getattr(stubborn, name), mode)], release=stubborn.go, cancel_grace_sec=GRACE_SEC) as it:
        report = await abandon(it, stubborn, name)

        assert report.outcome == Outcome.TIMED_OUT
        assert report.ended_ms - report.started_ms == 9_000
        assert "did not end within 4 s; it ignores its cancellation and was abandoned" in report.failure.message


async def test_run_is_not_abandoned_before_the_grace_is_over(stubborn: Stubborn) -> None:
    async with rig([handler(stubborn.thread, Mode.THREAD)], release=stubborn.go, cancel_grace_sec=GRACE_SEC) as it:
        made = await it.publish("thread", timeout_sec=4)
        await it.until(lambda: stubborn.entered)
        advance(it, 4)
        await it.turn()
        advance(it, GRACE_SEC - 0.1)
        await it.turn()

        assert await it.reports(made) == []


@pytest.mark.parametrize(("name", "mode"), [("thread", Mode.THREAD), ("swallow", Mode.ASYNC)], ids=str)
async def test_the_late_result_of_an_abandoned_run_is_dropped(stubborn: Stubborn, name: str, mode: Mode) -> None:
    async with rig([handler(getattr(stubborn, name), mode)], release=stubborn.go, cancel_grace_sec=GRACE_SEC) as it:
        report = await abandon(it, stubborn, name)
        assert it.metric("noonday_abandoned_runs") == 1
        stubborn.go.set()
        await it.until(lambda: it.metric("noonday_abandoned_runs") == 0)

        assert await it.reports() == [report]
        assert it.metric("noonday_runs_abandoned_total") == 1


@pytest.mark.parametrize(("name", "mode"), [("thread", Mode.THREAD), ("swallow", Mode.ASYNC)], ids=str)
async def test_an_abandoned_run_is_replaced_up_to_the_limit(stubborn: Stubborn, name: str, mode: Mode) -> None:
    handlers = [handler(getattr(stubborn, name), mode), handler(stubborn.quick, Mode.THREAD)]
    async with rig(
        handlers, release=stubborn.go, cancel_grace_sec=GRACE_SEC, threads=1, concurrency={"p": 1}, max_abandoned=2
    ) as it:
        await abandon(it, stubborn, name)
        assert (await it.ended(await it.publish("quick"))).outcome == Outcome.SUCCEEDED
        assert it.worker.reasons_not_ready() == []

        await abandon(it, stubborn, name)
        assert it.worker.reasons_not_ready()[0].startswith("2 abandoned runs have not ended, 2 at most are replaced")
        assert (await it.ended(await it.publish("quick"))).outcome == Outcome.SUCCEEDED

        await abandon(it, stubborn, name)
        waiting = await it.publish("quick")
        for _ in range(5):
            await it.turn()
        assert await it.reports(waiting) == [], "the third was not replaced"

        stubborn.go.set()
        assert (await it.ended(waiting)).outcome == Outcome.SUCCEEDED
        await it.until(lambda: not it.worker.reasons_not_ready())


async def test_threads_are_no_more_than_allowed_once_abandoned_ones_have_come_back(stubborn: Stubborn) -> None:
    handlers = [handler(stubborn.thread, Mode.THREAD), handler(stubborn.quick, Mode.THREAD)]
    async with rig(handlers, release=stubborn.go, cancel_grace_sec=GRACE_SEC, threads=1) as it:
        for _ in range(3):
            await abandon(it, stubborn, "thread")
        stubborn.go.set()
        await it.until(lambda: it.metric("noonday_abandoned_runs") == 0)
        await it.ended(await it.publish("quick"))

        await it.until(lambda: sum(each.name.startswith("noonday-handler-") for each in threading.enumerate()) <= 1)


async def test_abandoned_runs_are_shown_as_stuck(stubborn: Stubborn) -> None:
    async with rig(
        [handler(stubborn.thread, Mode.THREAD)], release=stubborn.go, cancel_grace_sec=GRACE_SEC, beat_sec=10
    ) as it:
        report = await abandon(it, stubborn, "thread")
        advance(it, 10)
        await it.turn()

        assert (await it.beats())[-1].stuck == (report.execution_id,)


async def test_a_cancelled_run_that_ignores_it_is_cancelled_after_the_grace(stubborn: Stubborn) -> None:
    async with rig([handler(stubborn.thread, Mode.THREAD)], release=stubborn.go, cancel_grace_sec=GRACE_SEC) as it:
        made = await it.publish("thread")
        await it.until(lambda: stubborn.entered)
        await it.signals.revoke("p", [(made.execution_id, made.number, "CANCELLED")])
        await it.turn()
        advance(it, GRACE_SEC)

        assert (await it.ended(made)).outcome == Outcome.CANCELLED


@pytest.mark.slow
async def test_a_process_that_ignores_its_end_is_dead_before_it_is_reported(tmp_path: Path) -> None:
    wait = handler(process_handlers.wait_for_named_file, Mode.PROCESS)
    async with rig([wait], processes=1, cancel_grace_sec=1.0) as it:
        made = await it.publish("wait_for_named_file", timeout_sec=4, name=str(tmp_path / "go"))
        await it.until(lambda: it.metric("noonday_busy_slots", pool="p") == 1)
        advance(it, 4)
        report = await it.ended(made)

        assert (report.outcome, it.metric("noonday_runs_abandoned_total")) == (Outcome.TIMED_OUT, 0)


@pytest.mark.slow
async def test_a_stop_interrupts_a_process_and_costs_no_attempt(tmp_path: Path) -> None:
    wait = handler(process_handlers.wait_for_named_file, Mode.PROCESS)
    async with rig([wait], processes=1, drain_sec=0.0, cancel_grace_sec=10.0, real_time=True) as it:
        made = await it.publish("wait_for_named_file", name=str(tmp_path / "go"))
        await it.until(lambda: (tmp_path / "go.entered").exists())
        await it.worker.close()

        (report,) = await it.reports(made)
        assert report.outcome == Outcome.INTERRUPTED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [("thread", Mode.THREAD), ("swallow", Mode.ASYNC), ("block", Mode.ASYNC)], ids=str
)
async def test_stop_interrupts_a_run_that_ignores_it_and_does_not_wait(
    stubborn: Stubborn, name: str, mode: Mode
) -> None:
    async with rig(
        [handler(getattr(stubborn, name), mode)],
        release=stubborn.go,
        drain_sec=0.1,
        cancel_grace_sec=0.1,
        real_time=True,
    ) as it:
        made = await it.publish(name)
        await it.until(lambda: stubborn.entered)
        async with asyncio.timeout(PATIENCE_SEC):
            await it.worker.close()

        (report,) = await it.reports(made)
        assert report.outcome == Outcome.INTERRUPTED
        assert not stubborn.go.is_set()


@pytest.mark.slow
async def test_run_that_a_blocked_loop_has_not_begun_is_returned_and_never_begun(stubborn: Stubborn) -> None:
    options = {"drain_sec": 0.1, "cancel_grace_sec": 0.1, "concurrency": {"p": 5}, "real_time": True}
    async with rig([handler(stubborn.block, Mode.ASYNC)], release=stubborn.go, **options) as it:
        first, second = await it.publish("block"), await it.publish("block")
        await it.until(lambda: stubborn.entered)
        await it.worker.close()
        stubborn.go.set()

        assert [(each.outcome, bool(each.started_ms)) for each in await it.reports(second)] == [
            (Outcome.INTERRUPTED, False)
        ]
        assert stubborn.entered == [first.execution_id]
