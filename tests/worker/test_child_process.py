"""One process that runs handlers, as its worker sees it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from noonday.crypto.keyring import Keyring
from noonday.model.message import Token
from noonday.worker.child_process import ChildProcess, ProcessDied
from noonday.worker.context import Context
from noonday.worker.function_ref import reference_to
from noonday.worker.process_messages import Call, HandlerEnded
from tests.worker import process_handlers as handlers
from tests.worker.runs import DEADLINE_SEC, new_run

LIMIT = 1_000
KEYRING = Keyring.generate()

# A process takes most of a second to start: the tests that do not kill it share one.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


class Child:
    """A process, and whether it is gone."""

    def __init__(self) -> None:
        self.gone: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()
        self.process = ChildProcess(asyncio.get_running_loop(), self.gone.set_result)
        self.entered = 0

    async def perform(
        self, function: Callable[..., Any], payload: Any = None, grace_sec: float = DEADLINE_SEC
    ) -> HandlerEnded:
        run = new_run(function, KEYRING, payload)
        text = None if payload is None else msgspec.json.encode(payload)
        call = Call(reference_to(function), handlers.RESOLVER, run.dispatch, Token(1, 5), text, None, LIMIT, LIMIT)
        return await self.process.perform(call, run, grace_sec, self._note_entered, DEADLINE_SEC)

    def _note_entered(self) -> None:
        self.entered += 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Child]:
    child = Child()
    yield child
    child.process.end()


@pytest_asyncio.fixture(loop_scope="module")
async def child() -> AsyncIterator[Child]:
    """A process that the test may kill."""
    child = Child()
    yield child
    child.process.end()


async def test_process_is_free_again_when_its_handler_has_ended(shared: Child) -> None:
    ended = await shared.perform(handlers.add, [1, 2, 3])
    assert (ended.result, ended.failure) == (b"6", None)
    assert shared.process.is_free()


async def test_entering_the_handler_is_reported(shared: Child) -> None:
    before = shared.entered
    await shared.perform(handlers.pid)
    assert shared.entered == before + 1


async def test_error_of_the_handler_is_its_failure(shared: Child) -> None:
    ended = await shared.perform(handlers.divide_by_zero)
    assert ended.failure is not None
    assert ended.failure.type == "ZeroDivisionError"
    assert shared.process.is_free()


async def test_progress_reaches_the_context_of_the_run(shared: Child) -> None:
    run = new_run(handlers.beat_with_progress, KEYRING)
    call = Call(
        reference_to(handlers.beat_with_progress),
        handlers.RESOLVER,
        run.dispatch,
        Token(1, 5),
        None,
        None,
        LIMIT,
        LIMIT,
    )
    await shared.process.perform(call, run, DEADLINE_SEC, lambda: None, DEADLINE_SEC)
    context: Context | None = run.context
    assert context is not None
    assert context._reported_progress == b'{"page":2}'


async def test_handler_that_heeds_its_cancellation_ends_by_itself(shared: Child) -> None:
    task = asyncio.create_task(shared.perform(handlers.wait_until_cancelled))
    before = shared.entered
    while shared.entered == before:
        await asyncio.sleep(0.002)
    task.cancel()
    ended = await task
    assert ended.observed
    assert shared.process.is_free()


async def test_handler_that_ignores_its_cancellation_is_killed_with_its_process(child: Child) -> None:
    """The run ends only when the process is dead, so that it cannot run twice."""
    task = asyncio.create_task(child.perform(handlers.never_listen, grace_sec=0.01))
    while not child.entered:
        await asyncio.sleep(0.002)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert child.gone.done()
    assert not child.process.is_free()


async def test_process_that_dies_under_its_handler_says_how(child: Child) -> None:
    with pytest.raises(ProcessDied, match="exit code 7"):
        await child.perform(handlers.leave, 7)
    assert (await child.gone) is child.process
