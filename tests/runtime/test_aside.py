import asyncio
import threading

import pytest

from noonday.model.errors import Busy
from noonday.ports.aside import MayGoOn
from noonday.runtime.aside import ThreadAside


async def test_work_runs_in_another_thread() -> None:
    assert await ThreadAside().run(lambda _: threading.get_ident()) != threading.get_ident()


async def test_work_that_goes_on_for_ever_is_stopped_by_its_budget() -> None:
    def work(may_go_on: MayGoOn) -> int:
        steps = 0
        while may_go_on():
            steps += 1
        return steps

    assert await ThreadAside(budget_sec=0.001).run(work) > 0


async def test_each_work_has_a_budget_of_its_own() -> None:
    aside = ThreadAside(budget_sec=0.001)

    def exhaust(may_go_on: MayGoOn) -> bool:
        began_well = may_go_on()
        while may_go_on():
            pass
        return began_well

    assert [await aside.run(exhaust) for _ in range(3)] == [True, True, True]


async def test_call_above_the_waiting_limit_is_refused() -> None:
    aside, go_on = ThreadAside(max_waiting=2), threading.Event()
    waiting = [asyncio.create_task(aside.run(lambda _: go_on.wait(60))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await aside.run(lambda _: None)
    go_on.set()
    assert await asyncio.gather(*waiting) == [True, True]
    assert await aside.run(lambda _: 7) == 7


async def test_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await ThreadAside().run(lambda _: 1 // 0)
