import asyncio
import threading

import pytest

from noonday.model.errors import Busy
from noonday.ports.offload import MayContinue
from noonday.runtime.offload import ThreadOffload


async def test_work_runs_in_another_thread() -> None:
    assert await ThreadOffload().run(lambda _: threading.get_ident()) != threading.get_ident()


async def test_work_that_goes_on_for_ever_is_stopped_by_its_budget() -> None:
    def work(may_continue: MayContinue) -> int:
        steps = 0
        while may_continue():
            steps += 1
        return steps

    assert await ThreadOffload(budget_sec=0.001).run(work) > 0


async def test_each_work_has_a_budget_of_its_own() -> None:
    offload = ThreadOffload(budget_sec=0.001)

    def exhaust(may_continue: MayContinue) -> bool:
        began_well = may_continue()
        while may_continue():
            pass
        return began_well

    assert [await offload.run(exhaust) for _ in range(3)] == [True, True, True]


async def test_call_above_the_waiting_limit_is_refused() -> None:
    offload, go_on = ThreadOffload(max_waiting=2), threading.Event()
    waiting = [asyncio.create_task(offload.run(lambda _: go_on.wait(60))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await offload.run(lambda _: None)
    go_on.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await offload.run(lambda _: 7) == 7


async def test_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await ThreadOffload().run(lambda _: 1 // 0)
