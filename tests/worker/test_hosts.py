"""The host that runs a handler."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from noonday.crypto.keyring import Keyring
from noonday.model.handler import Handler, Mode
from noonday.model.message import Token
from noonday.runtime.clock import SystemClock
from noonday.runtime.tracing import Tracing
from noonday.worker.context import Context
from noonday.worker.host import HandlerThread
from noonday.worker.hosts import Hosts
from noonday.worker.options import WorkerOptions
from noonday.worker.run import Run
from tests.support.factories import dispatch

SECONDS = 60


def function(ctx: Context) -> None:
    """Return at once."""


async def coroutine(ctx: Context) -> None:
    """Return at once."""


FUNCTION = Handler("function", "p", function, Mode.THREAD)
COROUTINE = Handler("coroutine", "p", coroutine, Mode.ASYNC)


@pytest.fixture
def handlers_loop() -> Iterator[asyncio.AbstractEventLoop]:
    thread = HandlerThread(asyncio.new_event_loop, "handlers")
    yield thread.loop
    thread.close()


def hosts_of(*handlers: Handler, loop: asyncio.AbstractEventLoop, on_ended: Any = print) -> Hosts:
    return Hosts(
        handlers={(each.pool, each.name): each for each in handlers},
        options=WorkerOptions(concurrency={"p": 2}),
        clock=SystemClock(),
        keyring=Keyring.generate(),
        tracing=Tracing(None),
        handlers_loop=loop,
        on_ended=on_ended,
    )


def run_of(handler: Handler) -> Run:
    now_ms = SystemClock().now_ms()
    return Run(dispatch(pool="p", payload=None, fired_ms=now_ms, due_ms=now_ms), Token(1, 1), handler)


async def test_a_pool_with_both_kinds_of_handlers_is_mixed(handlers_loop: asyncio.AbstractEventLoop) -> None:
    hosts = hosts_of(FUNCTION, COROUTINE, loop=handlers_loop)
    assert hosts.mixed_pools == {"p"}
    hosts.close()


@pytest.mark.parametrize("handler", [FUNCTION, COROUTINE], ids=lambda handler: handler.name)
async def test_a_pool_with_one_kind_is_not_mixed(handler: Handler, handlers_loop: asyncio.AbstractEventLoop) -> None:
    hosts = hosts_of(handler, loop=handlers_loop)
    assert hosts.mixed_pools == frozenset()
    hosts.close()


async def test_one_host_runs_all_if_coroutines_run_on_the_control_loop() -> None:
    hosts = hosts_of(FUNCTION, COROUTINE, loop=asyncio.get_running_loop())
    assert hosts.mixed_pools == frozenset()
    hosts.close()


async def test_a_function_runs_while_a_coroutine_blocks_the_handlers_loop(
    handlers_loop: asyncio.AbstractEventLoop,
) -> None:
    blocked, release, ended = threading.Event(), threading.Event(), threading.Event()

    async def block(ctx: Context) -> None:
        blocked.set()
        release.wait(SECONDS)

    blocking = Handler("block", "p", block, Mode.ASYNC)
    by_run: dict[Run, threading.Event] = {}
    hosts = hosts_of(FUNCTION, blocking, loop=handlers_loop, on_ended=lambda run: by_run[run].set())
    first, second = run_of(blocking), run_of(FUNCTION)
    by_run |= {first: threading.Event(), second: ended}
    hosts.start([first, second])
    assert await asyncio.to_thread(ended.wait, SECONDS)
    assert await asyncio.to_thread(blocked.wait, SECONDS)
    stepping = hosts.stepping
    assert stepping is not None
    assert stepping[0] is first
    release.set()
    assert await asyncio.to_thread(by_run[first].wait, SECONDS)
    hosts.close()
