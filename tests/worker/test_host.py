"""A host: which runs have a slot, and how they end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from noonday.crypto.keyring import Keyring
from noonday.model.execution import Outcome
from noonday.model.handler import Handler, Mode
from noonday.model.ids import WorkerId
from noonday.model.message import Token
from noonday.runtime.tracing import Tracing
from noonday.worker.context import Context
from noonday.worker.host import Host
from noonday.worker.identity import Identity
from noonday.worker.run import INTERRUPTED, Run
from tests.support.clock import ManualClock
from tests.support.factories import NOW_MS, dispatch

POOL = "p"


class Bench:
    """A host with one slot and one thread, on the loop of the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gate = asyncio.Event()
        self.thread_gate = threading.Event()
        self.ended: asyncio.Queue[Run] = asyncio.Queue()
        self.host = self.new_host()

    def new_host(self, threads: int = 1) -> Host:
        return Host(
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            keyring=Keyring.generate(),
            tracing=Tracing(None),
            concurrency={POOL: 1},
            threads=threads,
            processes=0,
            cancel_grace_sec=1.0,
            result_limit=100,
            on_ended=self.ended.put_nowait,
        )

    def run(self, call: Callable[..., Any], mode: Mode = Mode.ASYNC) -> Run:
        handler = Handler(call.__name__, POOL, call, mode, None, lambda value: str(value).encode())
        made = dispatch(pool=POOL, handler=handler.name, fired_ms=NOW_MS, payload=None)
        return Run(made, Token(1, NOW_MS), handler, Identity(WorkerId("w-1")))

    # Handlers

    async def quick(self, ctx: Context) -> str:
        return "done"

    async def wait(self, ctx: Context) -> str:
        await self.gate.wait()
        return "done"

    async def fail(self, ctx: Context) -> None:
        raise ValueError("no such table")

    async def ignore_cancellation(self, ctx: Context) -> None:
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                continue

    def block(self, ctx: Context) -> str:
        self.thread_gate.wait()
        return "done"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.gate.set()
    bench.thread_gate.set()
    bench.host.close()


async def begun(run: Run) -> None:
    while not run.begun_at and not run.started_ms:
        await asyncio.sleep(0)


async def test_handler_that_returns_has_succeeded_with_its_result(bench: Bench) -> None:
    bench.host.start([bench.run(bench.quick)])
    run = await bench.ended.get()
    assert (run.outcome, run.result, run.started_ms) == (Outcome.SUCCEEDED, b"done", NOW_MS)


async def test_handler_that_raises_has_failed_with_its_error(bench: Bench) -> None:
    bench.host.start([bench.run(bench.fail)])
    run = await bench.ended.get()
    assert run.outcome is Outcome.FAILED
    assert run.failure is not None
    assert (run.failure.type, run.failure.message) == ("ValueError", "no such table")


async def test_run_waits_until_its_pool_has_a_free_slot(bench: Bench) -> None:
    first, second = bench.run(bench.wait), bench.run(bench.quick)
    bench.host.start([first, second])
    await begun(first)
    assert not second.started_ms
    bench.gate.set()
    assert [await bench.ended.get(), await bench.ended.get()] == [first, second]


async def test_stopped_handler_is_cancelled(bench: Bench) -> None:
    run = bench.run(bench.wait)
    bench.host.start([run])
    await begun(run)
    bench.host.stop(run, "cancelled by ann")
    assert (await bench.ended.get()).outcome is Outcome.CANCELLED
    assert run.context is not None
    assert run.context.cancel_reason == "cancelled by ann"


async def test_run_that_is_stopped_before_it_starts_never_enters_its_handler(bench: Bench) -> None:
    first, second = bench.run(bench.wait), bench.run(bench.quick)
    bench.host.start([first, second])
    await begun(first)
    second.stop_requested = INTERRUPTED
    bench.gate.set()
    assert await bench.ended.get() is first
    run = await bench.ended.get()
    assert (run.outcome, run.started_ms) == (Outcome.INTERRUPTED, 0)


async def test_slot_of_an_abandoned_run_is_given_to_another(bench: Bench) -> None:
    stuck = bench.run(bench.ignore_cancellation)
    bench.host.start([stuck, bench.run(bench.quick)])
    await begun(stuck)
    bench.host.stop(stuck, "cancelled by ann")
    bench.host.abandon(stuck)
    assert (await bench.ended.get()).outcome is Outcome.SUCCEEDED
    bench.gate.set()
    assert await bench.ended.get() is stuck


async def test_plain_function_runs_in_a_thread_and_leaves_the_loop_free(bench: Bench) -> None:
    run = bench.run(bench.block, Mode.THREAD)
    bench.host.start([run])
    await begun(run)
    bench.thread_gate.set()
    assert (await bench.ended.get()).result == b"done"


async def test_plain_function_fails_where_there_are_no_threads(bench: Bench) -> None:
    host = bench.new_host(threads=0)
    host.start([bench.run(bench.block, Mode.THREAD)])
    run = await bench.ended.get()
    assert run.failure is not None
    assert "set worker.threads to 1 or more" in run.failure.message
    host.close()


async def test_dispatch_that_was_fired_too_long_ago_is_returned(bench: Bench) -> None:
    bench.clock.step(3_600)
    bench.host.start([bench.run(bench.quick)])
    assert (await bench.ended.get()).outcome is Outcome.INTERRUPTED
