import asyncio
import contextvars
from pathlib import Path

import pytest

from noonday import Context, Noonday
from noonday.model.errors import EngineStopped

WITHIN_SEC = 60
request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


def application() -> Noonday:
    app = Noonday()

    @app.handler("echo", pool="p")
    async def echo(ctx: Context, payload: int) -> int:
        return payload

    @app.handler("wait", pool="p")
    async def wait(ctx: Context) -> None:
        await asyncio.sleep(3600)

    @app.handler("context", pool="p")
    async def context(ctx: Context) -> str:
        return request_id.get()

    @app.handler("thread_context", pool="p")
    def thread_context(ctx: Context) -> str:
        return request_id.get()

    return app


async def runs(app: Noonday, data: Path) -> None:
    """Check that the file is free, and that an engine on it works."""
    async with app.embedded(data):
        assert await app.result(await app.enqueue("echo", 7), timeout=WITHIN_SEC) == 7


@pytest.mark.slow
async def test_a_cancellation_while_the_engine_closes_leaves_the_file_free(tmp_path: Path) -> None:
    app, data = application(), tmp_path / "x.db"
    entered, leaving = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.embedded(data, worker_drain_sec=1, worker_cancel_grace_sec=0):
            await app.enqueue("wait")
            entered.set()
            await leaving.wait()

    block = asyncio.create_task(live())
    await entered.wait()
    leaving.set()
    for _ in range(5):
        await asyncio.sleep(0)
        block.cancel()
    with pytest.raises(asyncio.CancelledError):
        await block
    await runs(app, data)


@pytest.mark.slow
async def test_a_cancellation_while_the_engine_opens_leaves_the_file_free(tmp_path: Path) -> None:
    app, data = application(), tmp_path / "x.db"

    async def live() -> None:
        async with app.embedded(data):
            raise AssertionError("the block was entered")

    for steps in range(1, 6):
        block = asyncio.create_task(live())
        for _ in range(steps):
            await asyncio.sleep(0)
        block.cancel()
        with pytest.raises(asyncio.CancelledError):
            await block
    await runs(app, data)


@pytest.mark.slow
async def test_failed_engine_raises_and_accepts_nothing(tmp_path: Path) -> None:
    app = application()
    async with app.embedded(tmp_path / "x.db") as running:
        assert running.healthy
        waiting = asyncio.create_task(app.result(await app.enqueue("echo", 1, delay=3600)))
        embedded = running._access  # the engine itself, to break it as a bug in a loop would
        loop = running._thread.loop
        loop.call_soon_threadsafe(embedded.engine.failed.set_exception, RuntimeError("broken"))
        while running.healthy:
            await asyncio.sleep(0.001)
        assert "broken" in running.problems()[0]
        with pytest.raises(EngineStopped, match="broken"):
            await app.enqueue("echo", 2)
        with pytest.raises(EngineStopped):
            await app.enqueue_many([app.spec_for("echo", 3)])
        with pytest.raises(EngineStopped):
            await waiting


@pytest.mark.parametrize("handler", ["context", "thread_context"])
async def test_handlers_see_the_context_variables_that_were_set_around_the_engine(handler: str) -> None:
    app = application()
    request_id.set("around the engine")
    async with app.embedded(":memory:"):
        request_id.set("of a request")
        job = await app.enqueue(handler)
        assert await app.result(job, timeout=WITHIN_SEC) == "around the engine"
