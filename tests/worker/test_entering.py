"""The start of a run: its timeout begins when its handler is entered, and no dispatch is taken that would have to wait."""

import threading
from pathlib import Path
from typing import Any

import pytest

from noonday.model.execution import Outcome
from noonday.model.handler import Mode
from noonday.worker.context import Context
from tests.support.factories import NOW_MS
from tests.worker import process_handlers
from tests.worker.rig import Rig, handler, rig


class Gate:
    """Handlers that wait until the test releases them."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered: list[str] = []

    def block(self, ctx: Context) -> str:
        self.entered.append(ctx.execution_id)
        self.open.wait()
        return "done"

    async def step(self, ctx: Context) -> str:
        self.entered.append(ctx.execution_id)
        return "done"


@pytest.fixture
def gate() -> Gate:
    return Gate()


def advance(rig: Rig, seconds: float) -> None:
    clock: Any = rig.clock
    clock.advance(seconds)


async def test_time_spent_waiting_for_a_thread_is_not_running_time(gate: Gate) -> None:
    async with rig([handler(gate.block, Mode.THREAD)], release=gate.open, threads=1) as it:
        first = await it.publish("block", timeout_sec=100)
        await it.until(lambda: gate.entered)
        second = await it.publish("block", timeout_sec=4, heartbeat_timeout_sec=4)
        await it.turn()
        advance(it, 50)
        await it.turn()
        gate.open.set()

        assert (await it.ended(first)).outcome == Outcome.SUCCEEDED
        report = await it.ended(second)

        assert report.outcome == Outcome.SUCCEEDED
        assert report.started_ms == NOW_MS + 50_000


@pytest.mark.slow
async def test_time_spent_waiting_for_a_process_is_not_running_time(tmp_path: Path) -> None:
    wait = handler(process_handlers.wait_for_named_file, Mode.PROCESS)
    async with rig([wait], processes=1) as it:
        first = await it.publish("wait_for_named_file", timeout_sec=100, name=str(tmp_path / "go"))
        await it.until(lambda: (tmp_path / "go.entered").exists())
        second = await it.publish(
            "wait_for_named_file", timeout_sec=4, heartbeat_timeout_sec=4, name=str(tmp_path / "go")
        )
        await it.turn()
        advance(it, 50)
        await it.turn()
        (tmp_path / "go").touch()

        assert (await it.ended(first)).outcome == Outcome.SUCCEEDED
        report = await it.ended(second)

        assert report.outcome == Outcome.SUCCEEDED
        assert report.started_ms == NOW_MS + 50_000


async def test_a_run_that_waits_for_a_thread_stays_with_the_control_loop(gate: Gate) -> None:
    handlers = [handler(gate.block, Mode.THREAD), handler(gate.step, Mode.ASYNC)]
    async with rig(handlers, release=gate.open, threads=2) as it:
        held = [await it.publish("block") for _ in range(5)]
        await it.until(lambda: len(gate.entered) == 2)
        await it.turn()

        assert it.worker._capacity._under_way[Mode.THREAD] == 2
        quick = await it.publish("step")
        assert (await it.ended(quick)).outcome == Outcome.SUCCEEDED, "coroutines of the pool do not wait for threads"

        gate.open.set()
        for each in held:
            assert (await it.ended(each)).outcome == Outcome.SUCCEEDED


async def test_pools_that_share_the_threads_take_turns(gate: Gate) -> None:
    handlers = [handler(gate.block, Mode.THREAD, pool="first"), handler(gate.block, Mode.THREAD, pool="second")]
    async with rig(handlers, release=gate.open, threads=2) as it:
        many = [(await it.publish("block", pool="first")).execution_id for _ in range(8)]
        single = (await it.publish("block", pool="second")).execution_id
        await it.until(lambda: len(gate.entered) == 2)

        assert single in gate.entered
        assert len(set(many) & set(gate.entered)) == 1


async def test_a_worker_announces_no_more_slots_than_it_has_threads_and_processes(gate: Gate) -> None:
    handlers = [
        handler(gate.block, Mode.THREAD, pool="threads"),
        handler(process_handlers.pid, Mode.PROCESS, pool="processes"),
        handler(gate.block, Mode.THREAD, pool="both"),
        handler(gate.step, Mode.ASYNC, pool="both"),
    ]
    async with rig(handlers, release=gate.open, threads=3, processes=2) as it:
        assert it.worker.pools == {"threads": 3, "processes": 2, "both": 10}


async def test_a_handler_that_cannot_be_imported_has_failed_and_used_an_attempt() -> None:
    async with rig([handler(process_handlers.HIDDEN, Mode.PROCESS)], processes=1) as it:
        report = await it.ended(await it.publish("hidden"))

        assert (report.outcome, report.started_ms) == (Outcome.FAILED, NOW_MS)
