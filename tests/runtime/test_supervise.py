"""Loops go on while a server is away, and none ends silently."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from noonday.model.errors import IndexUnavailable
from noonday.runtime.supervise import Loop, Tasks, reasons_not_ready
from tests.support.clock import ManualClock


class Service:
    def __init__(self, round_: Callable[[], Awaitable[int]] | None = None) -> None:
        self.rounds = 0
        self._round = round_

    async def run_once(self, now_ms: int) -> int:
        self.rounds += 1
        return await self._round() if self._round else 0


async def turn(clock: ManualClock, seconds: float = 0.0) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance(seconds)
    for _ in range(10):
        await asyncio.sleep(0)


async def test_index_that_fails_to_name_the_next_time_is_asked_again() -> None:
    clock, service, away = ManualClock(), Service(), True

    async def wait() -> float:
        if away:
            raise IndexUnavailable("redis is away")
        return 1.0

    loop, tasks = Loop("dispatcher", service, clock, wait), Tasks()
    tasks.spawn(loop.run(), "dispatcher")
    for _ in range(5):
        await turn(clock, 10)
    assert not tasks.failed.done()
    assert service.rounds > 4
    assert reasons_not_ready([loop]) == ["dispatcher: index-unavailable: redis is away"]
    away = False
    await turn(clock, 10)
    assert reasons_not_ready([loop]) == []
    await tasks.end()
    assert not tasks.failed.done()


async def _wait_for_a_cancelled_one() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    task.cancel()
    await task


async def _fail() -> None:
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("ends", "message"),
    [(_wait_for_a_cancelled_one, "was cancelled"), (_fail, "a bug")],
)
async def test_loop_that_ends_by_itself_is_a_failure(ends: Callable[[], Awaitable[None]], message: str) -> None:
    tasks = Tasks()
    tasks.spawn(ends(), "sweeper")  # type: ignore[arg-type]
    await asyncio.wait([tasks.failed], timeout=10)
    assert message in str(tasks.failed.exception())


async def test_loop_that_is_stopped_is_no_failure() -> None:
    tasks = Tasks()
    tasks.spawn(asyncio.sleep(1_000), "sweeper")
    await asyncio.sleep(0)
    await tasks.end("sweeper")
    assert not tasks.failed.done()
