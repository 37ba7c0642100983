"""A handler that blocks its loop harms its loop, and nothing else."""

from datetime import datetime
from pathlib import Path

import pytest

from tests.scenarios.process import Server, served, until


@pytest.mark.slow
async def test_a_coroutine_that_blocks_does_not_stop_the_engine_nor_handlers_in_threads(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with served(tmp_path, worker_beat_sec=1) as server:
        blocking = await server.create("block", {"until": str(go)})
        await server.started(blocking)
        before = await _last_seen(server)

        in_a_thread = [await server.create("plod", {"sec": 0.05}) for _ in range(5)]
        for job in in_a_thread:
            await server.execution(job, state="SUCCEEDED")
        neighbour = await server.create("act")
        await until(lambda: _later(server, before))

        assert (await server.ask("GET", "/readyz"))[0] == 200
        assert server.lines("start", neighbour) == []
        assert server.query("SELECT state FROM workers") == [("ALIVE",)]
        go.touch()
        for job in (blocking, neighbour):
            assert (await server.execution(job, state="SUCCEEDED"))["dispatch"] == 1
        assert server.query("SELECT state FROM workers") == [("ALIVE",)]


async def _last_seen(server: Server) -> datetime:
    _, answer = await server.ask("GET", "/v1/workers")
    (worker,) = answer["workers"]
    return datetime.fromisoformat(worker["lastSeenAt"])


async def _later(server: Server, before: datetime) -> bool:
    """Several beats came while the handler blocked."""
    return (await _last_seen(server) - before).total_seconds() > 3
