"""A process that is stopped."""

import signal
from pathlib import Path

import pytest

from tests.scenarios.process import Server, served, until

TRIES = 8
ENDED_BY_GUARD = "Timeout ("
"""Beginning of the traceback of a process whose machine was too busy for an orderly stop. Such a stop is tried again."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_handler_that_runs_may_finish(tmp_path: Path, number: int) -> None:
    async with served(tmp_path, worker_drain_sec=60) as server:
        job = await server.create("stay", {"until": str(tmp_path / "go")})
        await server.started(job)

        server.signal(number)
        await until(lambda: "Stopping" in server.out)
        (tmp_path / "go").touch()

        assert await server.exit_code() == 0
        assert server.query("SELECT state, attempt, dispatch FROM executions") == [(SUCCEEDED, 1, 1)]


@pytest.mark.slow
async def test_a_handler_that_runs_too_long_is_returned_and_has_lost_no_attempt(tmp_path: Path) -> None:
    async with served(tmp_path, worker_drain_sec=1) as server:
        job = await server.create("stay", {"until": str(tmp_path / "go")})
        first = await server.started(job)

        server.signal()

        assert await server.exit_code() == 0
        assert server.query("SELECT state, attempt, dispatch FROM executions") == [(PENDING, 1, 2)]
        (tmp_path / "go").touch()
        await server.up()
        assert (await server.execution(job, state="SUCCEEDED"))["attempt"] == 1
        assert (await server.started(job, times=2))["token"] > first["token"]
        assert len(server.lines("start", job)) == 2


@pytest.mark.slow
async def test_waiting_executions_are_not_lost_by_a_stop(tmp_path: Path) -> None:
    async with served(tmp_path, worker_drain_sec=1, worker_concurrency=1) as server:
        running = await server.create("stay", {"until": str(tmp_path / "go")})
        await server.started(running)
        queued = [await server.create("act") for _ in range(5)]
        later = await server.create("act", type="DELAYED", delaySec=3)

        server.signal()
        assert await server.exit_code() == 0
        assert server.lines("start", queued[0]) == []
        (tmp_path / "go").touch()
        await server.up()

        for job in (running, *queued, later):
            assert (await server.execution(job, state="SUCCEEDED"))["attempt"] == 1
        assert [len(server.lines("start", job)) for job in (*queued, later)] == [1] * 6


@pytest.mark.slow
async def test_a_second_signal_ends_the_process_at_once_and_loses_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, worker_drain_sec=600) as server:
        job = await server.create("stay", {"until": str(tmp_path / "go")})
        await server.started(job)
        server.signal()
        await until(lambda: "Stopping" in server.out)

        server.signal()

        assert await server.exit_code() == 128 + signal.SIGTERM
        (tmp_path / "go").touch()
        await server.up()
        await server.execution(job, state="SUCCEEDED")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handler", "pool", "payload"),
    [("mule", "processes", {"sec": 3600}), ("stubborn", "p", {}), ("block", "p", {})],
    ids=["process", "thread", "coroutine"],
)
async def test_a_handler_that_does_not_listen_is_interrupted_and_has_lost_no_attempt(
    tmp_path: Path, handler: str, pool: str, payload: dict[str, object]
) -> None:
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with served(folder, worker_drain_sec=1, worker_cancel_grace_sec=2) as server:
            job = await server.create(handler, {"until": str(folder / "go"), **payload}, pool=pool)
            await server.started(job)

            server.signal()

            code = await server.exit_code()
            if code == 1 and ENDED_BY_GUARD in server.err:
                continue
            assert code == 0
            assert server.query("SELECT state, attempt, dispatch FROM executions") == [(PENDING, 1, 2)]
            return
    pytest.fail(f"{TRIES} stops did not end in their time")


@pytest.mark.slow
async def test_a_thread_that_ignores_its_timeout_is_retried_while_it_still_runs(tmp_path: Path) -> None:
    async with served(tmp_path, worker_threads=1, worker_cancel_grace_sec=1) as server:
        policy = {"maxAttempts": 2, "backoff": "FIXED", "initialDelayMs": 0}
        job = await server.create("stubborn", {"until": str(tmp_path / "go")}, timeoutSec=1, retryPolicy=policy)
        first, second = await server.started(job), await server.started(job, times=2)

        assert second["attempt"] == 2
        assert second["token"] > first["token"]
        assert server.lines("end", job) == []
        await server.execution(job, state="DEAD")


@pytest.mark.slow
async def test_a_thread_that_will_not_end_does_not_keep_the_process(tmp_path: Path) -> None:
    async with served(tmp_path, worker_drain_sec=1, worker_cancel_grace_sec=1) as server:
        job = await server.create("stubborn", {"until": str(tmp_path / "go")})
        await server.started(job)

        server.signal()

        assert await server.exit_code() == 0
        assert server.lines("end", job) == []
        (tmp_path / "go").touch()
        await server.up()
        await server.execution(job, state="SUCCEEDED")


@pytest.mark.slow
async def test_process_that_is_stopped_while_it_starts_ends(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        server.start()
        await until(lambda: server.data.exists())

        server.signal()

        assert await server.exit_code() in (0, -signal.SIGTERM)
        await server.up()
        await server.execution(await server.create("act"), state="SUCCEEDED")


PENDING, SUCCEEDED = 0, 5
