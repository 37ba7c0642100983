"""A worker with oversized progress, a log that refuses it, a stall, and a stop."""

import asyncio
import threading
from collections.abc import Mapping, Sequence

import pytest

from noonday.drivers.memory.signals import MemorySignals
from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.model.ids import ExecutionId
from noonday.model.message import Bye, Dispatch, Hello, Report
from noonday.worker.context import Context
from noonday.worker.reporting import MAX_REFUSED_SEC
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.worker.process_handlers import beat_too_much
from tests.worker.rig import Rig, handler, rig
from tests.worker.test_outbox import NarrowBus


async def talk(ctx: Context) -> None:
    await ctx.heartbeat({"step": 1})
    await ctx.heartbeat("x" * 100)


async def quick(ctx: Context) -> str:
    return ctx.execution_id


async def until_cancelled(ctx: Context) -> None:
    await asyncio.sleep(3_600)


async def test_progress_that_is_too_large_is_refused_in_the_handler() -> None:
    async with rig([handler(talk, Mode.ASYNC)], progress_limit=50) as here:
        ended = await here.ended(await here.publish("talk"))
    assert ended.outcome == Outcome.FAILED
    assert ended.failure is not None
    assert ended.failure.type == "PayloadTooLarge"
    assert "102 bytes, more than 50" in ended.failure.message
    assert ended.progress is not None  # the progress before


@pytest.mark.slow
async def test_progress_that_is_too_large_is_refused_in_a_process() -> None:
    async with rig([handler(beat_too_much, Mode.PROCESS)], progress_limit=50, real_time=True) as here:
        ended = await here.ended(await here.publish("beat_too_much"))
    assert ended.failure is not None
    assert ended.failure.type == "PayloadTooLarge"


async def test_a_log_that_answers_and_takes_nothing_is_a_reason_to_start_anew() -> None:
    """An unavailable log is no reason: running executions would be lost for nothing."""
    clock = ManualClock()
    bus = NarrowBus(clock)
    async with rig([handler(quick, Mode.ASYNC)], bus=bus) as here:
        bus.away, bus.answers = {0}, False
        await here.publish("quick")
        await here.until(lambda: here.worker.reasons_not_ready())
        assert isinstance(here.clock, ManualClock)
        for answers, is_live in ((False, True), (True, False)):
            bus.answers = answers
            for _ in range(2):
                await here.worker._reporter.note_refusal()
                here.clock.advance(MAX_REFUSED_SEC + 1)
            assert here.worker.live() == is_live
        bus.away = set()
        await here.turn()
        assert (here.worker.live(), here.worker.reasons_not_ready()) == (True, [])


async def test_a_stalled_worker_goes_on_under_a_new_identity_at_once() -> None:
    """The worker neither waits for its runs nor starts any under its old identity; runs that ignore their end are
    abandoned."""
    release = threading.Event()

    def stubborn(ctx: Context) -> None:
        release.wait()

    handlers = [handler(stubborn, Mode.THREAD), handler(until_cancelled, Mode.ASYNC), handler(quick, Mode.ASYNC)]
    async with rig(handlers, release=release, frozen_after_sec=20.0, cancel_grace_sec=5.0) as here:
        stuck, heeds = await here.publish("stubborn"), await here.publish("until_cancelled")
        await here.until(lambda: here.worker._active.busy("p") == 2)
        former = here.worker.id
        assert isinstance(here.clock, ManualClock)
        here.clock.advance(21)
        waiting = await here.publish("quick")
        await here.worker.watch_once()
        assert here.worker.id != former
        ended = await here.ended(heeds)
        assert (ended.worker_id, ended.outcome) == (former, Outcome.INTERRUPTED)
        assert (await here.ended(waiting)).worker_id == here.worker.id
        assert await here.reports(stuck) == []
        here.clock.advance(5)
        abandoned = await here.ended(stuck)
        assert (abandoned.worker_id, abandoned.outcome) == (former, Outcome.INTERRUPTED)
        await here.turn()
        await here.turn()
        signs = [each for each in (await here.bus.read(0, 0, 100_000, 0)).entries if isinstance(each, Hello | Bye)]
        assert [(type(each), each.worker_id) for each in signs] == [
            (Hello, former),
            (Hello, here.worker.id),
            (Bye, former),
        ]


async def test_a_stalled_worker_starts_nothing_before_it_has_a_new_identity() -> None:
    async with rig([handler(quick, Mode.ASYNC)], frozen_after_sec=20.0) as here:
        former = here.worker.id
        waiting = await here.publish("quick")
        await here.worker.take_once(0)
        assert isinstance(here.clock, ManualClock)
        here.clock.advance(21)
        await here.worker.start_once()
        assert here.worker._active.busy("p") == 0
        ended = await here.ended(waiting)
        assert (ended.worker_id, ended.outcome) == (former, Outcome.INTERRUPTED)


class SlowSignals(MemorySignals):
    """Answers pre-start checks when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def pre_start_check(self, pool: str, dispatches: Sequence[Dispatch]) -> Mapping[ExecutionId, str] | None:
        self.asked.set()
        await self.answer.wait()
        return await super().pre_start_check(pool, dispatches)


@pytest.mark.slow
async def test_a_stop_hands_back_runs_in_their_pre_start_check() -> None:
    signals = SlowSignals()
    async with rig([handler(quick, Mode.ASYNC)], signals=signals, real_time=True) as here:
        one = await here.publish("quick")
        await here.worker.take_once(0)
        starting = asyncio.create_task(here.worker.start_once())
        await signals.asked.wait()
        await here.worker.close()
        (ended,) = await here.reports(one)
        assert ended.outcome == Outcome.INTERRUPTED
        signals.answer.set()
        await starting
        assert len(await here.reports(one)) == 1


async def test_a_stop_hands_back_runs_whose_check_was_cancelled() -> None:
    signals = SlowSignals()
    async with rig([handler(quick, Mode.ASYNC)], signals=signals, real_time=True) as here:
        one = await here.publish("quick")
        await here.worker.take_once(0)
        starting = asyncio.create_task(here.worker.start_once())
        await signals.asked.wait()
        starting.cancel()
        await here.worker.close()
        (ended,) = await here.reports(one)
        assert ended.outcome == Outcome.INTERRUPTED


async def test_a_worker_that_stops_leaves_its_pools_before_its_runs_have_ended() -> None:
    release = threading.Event()

    def waits(ctx: Context) -> None:
        release.wait()

    async with rig([handler(waits, Mode.THREAD)], release=release, real_time=True) as here:
        one = await here.publish("waits")
        await here.until(lambda: here.worker._active.busy("p") == 1)
        closing = asyncio.create_task(here.worker.close())
        await eventually(lambda: _has_left(here))
        assert not await here.reports(one)
        release.set()
        await closing
        (ended,) = await here.reports(one)
        assert ended.outcome == Outcome.SUCCEEDED


async def _has_left(here: Rig) -> bool:
    return not await here.bus.credit()


async def test_a_dispatch_that_may_have_run_starts_when_its_start_is_recorded() -> None:
    """An earlier dispatch of its attempt may have killed its worker before that could report anything."""
    async with rig([handler(quick, Mode.ASYNC)]) as here:
        first = await here.publish("quick")
        again = await here.publish("quick", number=2)
        assert (await here.ended(first)).outcome == Outcome.SUCCEEDED
        assert here.worker.is_announcing
        announcing = asyncio.create_task(here.worker.announce_once())
        await asyncio.sleep(0)
        entries = (await here.bus.read(0, 0, 100, 0)).entries
        (start,) = [each for each in entries if isinstance(each, Report) and each.execution_id == again.execution_id]
        assert start.outcome == Outcome.STARTED
        assert not announcing.done()
        # Reading on confirms that all of it is recorded.
        await here.bus.read(0, len(entries), 100, 0)
        await announcing
        assert not here.worker.is_announcing
        await here.until(lambda: not here.worker._active)
        (end,) = (await here.bus.read(0, len(entries), 100, 0)).entries
        assert isinstance(end, Report)
        assert (end.execution_id, end.outcome) == (again.execution_id, Outcome.SUCCEEDED)


async def test_stop_hands_back_runs_that_wait_for_their_announcement() -> None:
    async with rig([handler(quick, Mode.ASYNC)], real_time=True) as here:
        again = await here.publish("quick", number=2)
        await here.worker.take_once(0)
        await here.worker.start_once()
        announcing = asyncio.create_task(here.worker.announce_once())
        await asyncio.sleep(0)
        await here.worker.close()
        (ended,) = await here.reports(again)
        assert ended.outcome == Outcome.INTERRUPTED
        assert ended.started_ms > 0  # its start may be on the log, and counts as a run
        announcing.cancel()


async def test_the_second_attempt_starts_without_an_announcement() -> None:
    async with rig([handler(quick, Mode.ASYNC)]) as here:
        ended = await here.ended(await here.publish("quick", number=2, attempt=2))
    assert ended.outcome == Outcome.SUCCEEDED
