"""A handler that blocks its loop harms its loop alone; a stuck tick loop is noticed."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from noonday.crypto.keyring import Keyring
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.memory.leases import LocalLeases
from noonday.drivers.sqlite.store import open_store
from noonday.model.firing import Entry
from noonday.model.shares import EQUAL, Shares
from noonday.wiring.embedded import drivers_on, file_options
from noonday.wiring.engine import Engine
from noonday.wiring.settings import Settings
from noonday.worker.host import HandlerThread
from tests.scenarios.clock import SetClock
from tests.scenarios.inside import Inside
from tests.scenarios.process import Server, served, until


@pytest.mark.slow
async def test_a_coroutine_that_blocks_does_not_stop_the_engine_nor_handlers_in_threads(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with served(tmp_path, worker_beat_sec=1) as server:
        blocking = await server.create("block", {"until": str(go)})
        await server.started(blocking)
        before = await _last_seen(server)

        in_threads = [await server.create("plod", {"sec": 0.05}) for _ in range(5)]
        for job in in_threads:
            await server.execution(job, state="SUCCEEDED")
        in_a_process = await server.create("mule", {"sec": 0}, pool="processes")
        await server.execution(in_a_process, state="SUCCEEDED")
        neighbour = await server.create("act")
        await until(lambda: _is_seen_again(server, before))

        assert (await server.ask("GET", "/readyz"))[0] == 200
        assert server.lines("start", neighbour) == []
        assert server.query("SELECT state FROM workers") == [("ALIVE",)]
        go.touch()
        for job in (blocking, neighbour):
            assert (await server.execution(job, state="SUCCEEDED"))["dispatch"] == 1


@pytest.fixture
def handlers_loop() -> Iterator[asyncio.AbstractEventLoop]:
    thread = HandlerThread(asyncio.new_event_loop, "handlers")
    yield thread.loop
    thread.close()


@pytest.mark.slow
async def test_executions_that_waited_behind_a_blocking_coroutine_run_once(
    tmp_path: Path, handlers_loop: asyncio.AbstractEventLoop
) -> None:
    async with Inside(tmp_path).open(run=False, handlers_loop=handlers_loop) as inside:
        blocking = await inside.create("block")
        await inside.turn()
        await until(lambda: inside.runs(blocking))
        behind = [await inside.create("hurry") for _ in range(3)]
        await inside.turn()

        for _ in range(20):
            inside.clock.let_pass(50)
            await inside.tick()
            await inside.turn()
        inside.unblock.set()
        await until(lambda: _have_ended(inside))

        assert [len(inside.runs(job)) for job in (blocking, *behind)] == [1, 1, 1, 1]
        assert inside.query("SELECT DISTINCT state FROM executions") == [(SUCCEEDED,)]


class StuckIndex(MemoryHotIndex):
    async def claim(
        self,
        now_ms: int,
        partitions: Collection[int],
        credit: Mapping[str, int],
        limit: int,
        shares: Shares = EQUAL,
    ) -> list[Entry]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


@pytest.mark.slow
async def test_engine_with_a_stuck_tick_loop_is_not_ready(tmp_path: Path) -> None:
    settings, clock = Settings(data=str(tmp_path / "noonday.db")), SetClock()
    store = open_store(settings.data, file_options(settings), settings.scheduler.lead_ms)
    drivers = drivers_on(store, LocalLeases(None, clock), Keyring.generate(), clock, settings)
    engine = Engine(replace(drivers, index=StuckIndex(settings.scheduler.lead_ms)), settings, {})
    await engine.start()
    await until(lambda: engine.ready() == [])

    clock.let_pass(6)
    await until(lambda: len(engine.ready()) == 1)

    assert engine.ready()[0].startswith("dispatcher completed its last round")
    await engine.stop()
    await store.close()


async def _last_seen(server: Server) -> datetime:
    _, answer = await server.ask("GET", "/v1/workers")
    (worker,) = answer["workers"]
    return datetime.fromisoformat(worker["lastSeenAt"])


async def _is_seen_again(server: Server, before: datetime) -> bool:
    """Whether more than one heartbeat came after a time."""
    return (await _last_seen(server) - before).total_seconds() > 2


async def _have_ended(inside: Inside) -> bool:
    await inside.turn()
    return not inside.query("SELECT 1 FROM executions WHERE state < 2")


SUCCEEDED = 5
