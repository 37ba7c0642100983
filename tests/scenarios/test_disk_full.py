"""The disk is full for a while: errors say so, and nothing that was acknowledged is lost."""

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.process import UNFINISHED, Server, job_body, until
from tests.scenarios.server_run import check
from tests.simulation.history import Answer

FULL = "is full: free some space"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(folder)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {completed.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
async def test_requests_on_a_full_disk_fail_with_the_reason_and_nothing_is_lost(
    tmp_path: Path, small_disk: Path
) -> None:
    async with Server(tmp_path, data=small_disk / "noonday.db") as server:
        await server.up()
        running = await server.create("stay", {"until": str(tmp_path / "go")})
        await server.started(running)
        soon = [await server.create("act", type="DELAYED", delaySec=1) for _ in range(5)]
        cron = await server.create("act", type="CRON", schedule="* * * * * *", maxRuns=5, catchUp={"policy": "ALL"})

        with filled(small_disk):
            acknowledged, problem = await create_until_refused(server)
            (tmp_path / "go").touch()
            await until(lambda: server.lines("end", running))
            unready = await until(lambda: unreadiness_of(server))

        assert FULL in problem["detail"]
        assert str(server.data) in problem["detail"]
        assert FULL in unready["detail"]
        await until(lambda: is_quiet(server))
        assert (await server.ask("GET", "/readyz"))[0] == 200
        assert server.starts == 1
        for job in (running, *soon, *acknowledged):
            assert (await server.execution(job, state="SUCCEEDED"))["dispatch"] == 1
            assert len(server.lines("start", job)) == 1
        assert len(server.lines("start", cron)) == 5
        assert server.query("SELECT count(*) FROM executions")[0][0] == 1 + 5 + 5 + len(acknowledged)
        assert check(server, [Answer("create", job["jobId"], 0) for job in (running, cron, *soon, *acknowledged)]) == []


@pytest.mark.slow
async def test_process_that_can_neither_commit_nor_roll_back_ends_with_the_reason(tmp_path: Path) -> None:
    async with Server(tmp_path, worker_drain_sec=1, worker_cancel_grace_sec=1) as server:
        await server.up()
        await server.execution(await server.create("act"), state="SUCCEEDED")
        await server.create("lose-store", None)

        assert await server.exit_code() == 1
        assert f"{server.data} can neither commit nor roll back" in server.err
        await server.up()
        await server.execution(await server.create("act"), state="SUCCEEDED")


@pytest.mark.slow
async def test_a_stop_while_the_disk_is_full_lets_handlers_finish_and_loses_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    async with Server(tmp_path, data=small_disk / "noonday.db", worker_drain_sec=60) as server:
        await server.up()
        running = await server.create("stay", {"until": str(tmp_path / "go")})
        await server.started(running)

        with filled(small_disk):
            acknowledged, _ = await create_until_refused(server)
            server.signal()
            await until(lambda: "Stopping" in server.out)
            with pytest.raises(AssertionError, match="not within"):
                await until(lambda: server.process.poll() is not None, within_sec=1)
            (tmp_path / "go").touch()

            assert await server.exit_code() == 3
            assert FULL in server.err
        assert len(server.lines("end", running)) == 1
        await server.up()
        for job in (running, *acknowledged):
            await server.execution(job, state="SUCCEEDED")


@pytest.mark.slow
async def test_start_on_a_full_disk_fails_with_the_reason(tmp_path: Path, small_disk: Path) -> None:
    async with Server(tmp_path, data=small_disk / "noonday.db") as server:
        with filled(small_disk):
            server.start()

            assert await server.exit_code() == 3
            assert str(server.data) in server.err

        await server.up()
        await server.execution(await server.create("act"), state="SUCCEEDED")


@pytest.mark.slow
async def test_file_that_may_not_grow_fails_requests_with_the_reason_and_nothing_is_lost(tmp_path: Path) -> None:
    async with Server(tmp_path) as server:
        await server.up()
        largest = max(file.stat().st_size for file in tmp_path.iterdir())

        with limited(server.pid, largest):
            acknowledged, problem = await create_until_refused(server)

        assert f"writing {server.data} failed: check the disk" in problem["detail"]
        await until(lambda: is_quiet(server))
        for job in acknowledged:
            assert (await server.execution(job, state="SUCCEEDED"))["attempt"] == 1
            assert len(server.lines("start", job)) == 1
        assert server.query("SELECT count(*) FROM jobs")[0][0] == len(acknowledged)
        assert check(server, [Answer("create", job["jobId"], 0) for job in acknowledged]) == []


async def create_until_refused(server: Server) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Create jobs until one is refused. Returns the acknowledged ones, and the refusal."""
    acknowledged = []
    while True:
        body = job_body("act", {"ballast": os.urandom(20_000).hex()})
        status, answer = await server.ask("POST", "/v1/jobs", body)
        if status == 503:
            assert answer["type"].endswith("/store-unavailable")
            return acknowledged, answer
        assert status == 201, answer
        acknowledged.append(answer)


async def unreadiness_of(server: Server) -> Any:
    status, problem = await server.ask("GET", "/readyz")
    return problem if status == 503 else None


def is_quiet(server: Server) -> bool:
    return not server.query(UNFINISHED)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Fill a disk with a foreign file."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def limited(pid: int, size: int) -> Iterator[None]:
    """Limit the size of every file of a process."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
