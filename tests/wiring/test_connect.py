"""An application that is connected to a server: the same calls, made from several processes, with and without an event loop."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from noonday import Context, Noonday
from noonday.crypto.tokens import mint
from noonday.model.errors import Conflict, EngineStopped, ExecutionFailed, InvalidInput
from noonday.model.view import ExecutionView
from noonday.runtime.clock import SystemClock
from noonday.sdk.problems import ClientClosed, ServerUnreachable
from noonday.wiring.sync_application import SyncApplication
from tests.support.eventually import PATIENCE_SEC, eventually

WITHIN_SEC = 60
SECRET = "0123456789abcdef0123456789abcdef"
NOWHERE = "http://127.0.0.1:1"


def application() -> Noonday:
    """The module that every process of an application imports."""
    app = Noonday()

    @app.handler("echo", pool="p")
    async def echo(ctx: Context, payload: int) -> int:
        return payload

    @app.handler("wait", pool="p")
    async def wait(ctx: Context) -> None:
        await asyncio.sleep(3600)

    @app.handler("chain", pool="p")
    def chain(ctx: Context) -> str:
        return app.sync.enqueue("echo", 5).job_id

    @app.cron("0 3 * * *", pool="p")
    async def nightly(ctx: Context) -> None: ...

    return app


def token() -> str:
    now = SystemClock().now_ms() / 1000
    return mint(SECRET, tenant="default", subject="test", scopes=["read", "write"], ttl_seconds=3600, now=now)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The URL of a server that runs the application."""
    async with application().embedded(
        ":memory:", serve="127.0.0.1:0", auth_secret=SECRET, worker_drain_sec=0, worker_cancel_grace_sec=1
    ) as running:
        assert running.url is not None
        yield running.url


# -- with an event loop ------------------------------------------------------------------------------------------------


async def test_the_same_calls_work_on_a_server(url: str) -> None:
    app = application()
    async with app.connect(url, token()) as client:
        job = await app.enqueue("echo", 7)
        assert await app.result(job, timeout=WITHIN_SEC) == 7
        ids = await app.enqueue_many([app.spec_for("echo", n) for n in range(3)])
        assert [await app.result(job_id, timeout=WITHIN_SEC) for job_id in ids] == [0, 1, 2]
        waiting = await app.enqueue("wait")

        async def executions() -> tuple[ExecutionView, ...]:
            return (await client.get_job(waiting.job_id)).executions

        await app.cancel((await eventually(executions))[0])
        with pytest.raises(ExecutionFailed, match="CANCELLED"):
            await app.result(waiting, timeout=WITHIN_SEC)
    with pytest.raises(Conflict, match="no engine and no server"):
        await app.enqueue("echo", 7)


async def test_declared_jobs_are_those_of_the_server(url: str) -> None:
    app = application()

    @app.every(3600, pool="p")
    async def only_here(ctx: Context) -> None: ...

    async with app.connect(url, token()) as client:
        assert [job.name async for job in client.list_jobs().items()] == ["nightly"]


async def test_a_payload_is_validated_before_it_is_sent() -> None:
    app = application()
    async with app.connect(NOWHERE, "t"):
        with pytest.raises(InvalidInput):
            await app.enqueue("echo", "seven")


async def test_many_jobs_are_created_together_or_not_at_all(url: str) -> None:
    app = application()
    async with app.connect(url, token()) as client:
        with pytest.raises(InvalidInput, match="nothing was stored"):
            await app.enqueue_many([app.spec_for("echo", 1, delay=3600), app.spec_for("x", pool="nowhere")])
        assert [job async for job in client.list_jobs(handler="echo").items()] == []


async def test_a_server_that_is_away_is_noticed_by_the_call() -> None:
    app = application()
    async with app.connect(NOWHERE, "t"):
        with pytest.raises(ServerUnreachable, match="noonday up"):
            await app.enqueue("echo", 1)


async def test_one_block_is_entered_at_a_time() -> None:
    app = application()
    async with app.connect(NOWHERE, "t"):
        with pytest.raises(Conflict, match="leave its"):
            async with app.embedded(":memory:"):
                pass
        with pytest.raises(Conflict, match="leave its"):
            async with app.connect(NOWHERE, "t"):
                pass


# -- without an event loop ---------------------------------------------------------------------------------------------


async def in_thread(call: Callable[[], object]) -> object:
    return await asyncio.to_thread(call)


@pytest.mark.slow
async def test_the_same_calls_work_without_an_event_loop(url: str) -> None:
    app = application()

    def use() -> None:
        with app.connect_sync(url, token()) as client:
            assert app.sync.result(app.sync.enqueue("echo", 7), timeout=WITHIN_SEC) == 7
            ids = app.sync.enqueue_many([app.spec_for("echo", n) for n in range(3)])
            assert [app.sync.result(job_id, timeout=WITHIN_SEC) for job_id in ids] == [0, 1, 2]
            waiting = app.sync.enqueue("wait")
            deadline = time.monotonic() + PATIENCE_SEC
            while not (open_ := client.get_job(waiting.job_id).executions):
                assert time.monotonic() < deadline
            app.sync.cancel(open_[0])
            with pytest.raises(ExecutionFailed, match="CANCELLED"):
                app.sync.result(waiting, timeout=WITHIN_SEC)
            with pytest.raises(TimeoutError):
                app.sync.result(app.sync.enqueue("wait"), timeout=0.001)
        with pytest.raises(ClientClosed):
            app.sync.enqueue("echo", 7)

    await in_thread(use)


async def test_a_second_connection_replaces_and_closes_the_first() -> None:
    app = application()
    first = app.connect_sync(NOWHERE, "t")
    second = app.connect_sync(NOWHERE, "t")

    def use() -> None:
        with pytest.raises(ClientClosed):
            first.get_job("a")
        with pytest.raises(ServerUnreachable):
            app.sync.enqueue("echo", 7)

    await in_thread(use)
    second.close()


@pytest.mark.slow
@pytest.mark.parametrize("embedded", [True, False])
async def test_threads_use_the_block_that_the_event_loop_entered(url: str, embedded: bool) -> None:
    """As the plain functions of FastAPI do."""
    app = application()
    with ThreadPoolExecutor(4) as threads:
        async with app.embedded(":memory:") if embedded else app.connect(url, token()):
            calls = [
                asyncio.get_running_loop().run_in_executor(
                    threads, lambda n=n: app.sync.result(app.sync.enqueue("echo", n), timeout=WITHIN_SEC)
                )
                for n in range(8)
            ]
            assert await asyncio.gather(*calls) == list(range(8))


async def test_a_plain_handler_creates_a_job() -> None:
    app = application()
    async with app.embedded(":memory:"):
        chained = await app.result(await app.enqueue("chain"), timeout=WITHIN_SEC)
        assert await app.result(chained, timeout=WITHIN_SEC) == 5


async def test_waiting_in_an_event_loop_is_refused() -> None:
    app = application()
    async with app.embedded(":memory:"):
        with pytest.raises(Conflict, match=r"await app\.enqueue"):
            app.sync.enqueue("echo", 1)


def test_without_a_server_the_ways_to_one_are_named() -> None:
    with pytest.raises(Conflict, match=r"app\.connect_sync"):
        application().sync.enqueue("echo", 1)


@pytest.mark.slow
async def test_a_thread_that_waits_is_released_when_the_block_ends() -> None:
    app = application()
    began = threading.Event()

    def wait() -> None:
        job = app.sync.enqueue("echo", 1, delay=3600)
        began.set()
        with pytest.raises(EngineStopped):
            app.sync.result(job)

    async with app.embedded(":memory:"):
        waiting = asyncio.create_task(in_thread(wait))
        await eventually(began.is_set)
    await waiting


def test_both_ways_have_the_same_parameters() -> None:
    for name in ("enqueue", "enqueue_many", "result", "cancel"):
        of_both = [inspect.signature(getattr(each, name)).parameters for each in (Noonday, SyncApplication)]
        assert set(of_both[0]) == set(of_both[1]), name


# -- several processes -------------------------------------------------------------------------------------------------

PRE_FORKED = """
import os, sys
from tests.wiring.test_connect import application

app = application()
app.connect_sync(sys.argv[1], sys.argv[2])
app.sync.result(app.sync.enqueue("echo", 0), timeout=60)
children = []
for number in (1, 2):
    if (child := os.fork()) == 0:
        line = f"{app.sync.result(app.sync.enqueue('echo', number), timeout=60)}{os.linesep}"
        os.write(1, line.encode())  # in one piece: the other child writes to the same pipe
        sys.exit(0)
    children.append(child)
statuses = [os.waitpid(child, 0)[1] for child in children]
print(app.sync.result(app.sync.enqueue("echo", 3), timeout=60), statuses)
"""


@pytest.mark.slow
async def test_an_application_that_is_connected_before_a_fork_works_in_every_process(url: str) -> None:
    """As under gunicorn --preload. All processes exit without a warning."""
    script = [sys.executable, "-W", "error", "-c", PRE_FORKED, url, token()]
    ran = await asyncio.to_thread(
        subprocess.run, script, capture_output=True, text=True, timeout=WITHIN_SEC, check=False
    )
    assert ran.stderr == ""
    *children, parent = ran.stdout.splitlines()
    assert (sorted(children), parent) == (["1", "2"], "3 [0, 0]")


SECOND_ENGINE = """
import asyncio, sys
from tests.wiring.test_connect import application

async def main():
    async with application().embedded(sys.argv[1]):
        pass

try:
    asyncio.run(main())
except Exception as refused:
    print(type(refused).__name__, refused)
"""


@pytest.mark.slow
async def test_an_engine_in_a_second_process_is_pointed_to_connect(tmp_path: Path) -> None:
    async with application().embedded(tmp_path / "shop.db"):
        script = [sys.executable, "-c", SECOND_ENGINE, str(tmp_path / "shop.db")]
        ran = await asyncio.to_thread(
            subprocess.run, script, capture_output=True, text=True, timeout=WITHIN_SEC, check=False
        )
    assert ran.stdout == (
        f"AlreadyRunning another process ({os.getpid()}) runs the engine on {tmp_path}/shop.db, and one process can: run "
        "`noonday up module:app` once, and use app.connect(url, token) in each process of the application "
        "(docs/howto/fastapi.md)\n"
    )
