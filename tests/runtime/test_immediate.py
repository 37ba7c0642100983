import asyncio

import pytest

from noonday.runtime.immediate import run_now


async def double(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


def test_a_coroutine_that_waits_for_nothing_is_run_without_a_loop() -> None:
    assert run_now(double(21)) == 42


async def test_a_coroutine_is_run_beside_a_loop() -> None:
    assert run_now(double(21)) == 42


async def test_a_coroutine_that_waits_is_refused_and_closed() -> None:
    closed = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="wait waits for <Future pending>"):
        run_now(wait())
    assert closed == [True]


def test_an_error_of_the_coroutine_is_raised() -> None:
    async def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        run_now(fail())
