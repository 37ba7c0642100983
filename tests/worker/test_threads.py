"""Threads of plain functions."""

import asyncio
import threading

import pytest

from noonday.worker.threads import ThreadCall, Threads


class Gate:
    """A function that waits in its thread until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def wait(self) -> str:
        self.entered.release()
        self.opened.wait()
        return threading.current_thread().name


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def entered(gate: Gate) -> None:
    """Wait until one more call is in its thread."""
    await asyncio.to_thread(gate.entered.acquire)


async def test_result_of_a_function_is_the_result_of_its_call() -> None:
    threads = Threads(1)
    assert await threads.call(divmod, 7, 2).future == (3, 1)
    threads.close()


async def test_error_of_a_function_is_raised() -> None:
    threads = Threads(1)
    with pytest.raises(ZeroDivisionError):
        await threads.call(divmod, 7, 0).future
    threads.close()


async def test_function_that_raises_stop_iteration_fails_with_a_message() -> None:
    """A future cannot carry StopIteration."""
    threads = Threads(1)
    with pytest.raises(RuntimeError, match="the handler raised StopIteration"):
        await threads.call(next, iter([])).future
    threads.close()


async def test_thread_is_reused(gate: Gate) -> None:
    threads = Threads(5)
    gate.opened.set()
    assert {await threads.call(gate.wait).future for _ in range(3)} == {"noonday-handler-1"}
    threads.close()


async def test_no_more_threads_run_at_once_than_the_limit(gate: Gate) -> None:
    threads = Threads(2)
    calls = [threads.call(gate.wait) for _ in range(4)]
    await entered(gate)
    await entered(gate)
    assert not gate.entered.acquire(blocking=False)
    gate.opened.set()
    names = [await call.future for call in calls]
    assert set(names) == {"noonday-handler-1", "noonday-handler-2"}
    threads.close()


async def test_replaced_thread_makes_room_for_another_call(gate: Gate) -> None:
    threads, stuck = Threads(1), Gate()
    first = threads.call(stuck.wait)
    await entered(stuck)
    threads.grow()
    gate.opened.set()
    assert await threads.call(gate.wait).future == "noonday-handler-2"
    stuck.opened.set()
    assert await first.future == "noonday-handler-1"
    threads.shrink()
    threads.close()


async def test_call_that_is_withdrawn_before_it_began_is_never_made(gate: Gate) -> None:
    threads, made = Threads(1), []
    first = threads.call(gate.wait)
    await entered(gate)
    second = threads.call(made.append, 1)
    assert second.withdraw()
    gate.opened.set()
    await first.future
    last = threads.call(made.append, 2)
    await last.future
    assert made == [2]
    threads.close()


async def test_call_that_has_begun_cannot_be_withdrawn(gate: Gate) -> None:
    threads = Threads(1)
    call = threads.call(gate.wait)
    await entered(gate)
    assert not call.withdraw()
    gate.opened.set()
    await call.future
    threads.close()


async def test_result_of_a_call_whose_future_was_cancelled_is_dropped() -> None:
    call = ThreadCall(divmod, (7, 2))
    call.future.cancel()
    call.perform()
    await asyncio.sleep(0)
    assert call.future.cancelled()
