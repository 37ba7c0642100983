"""`python -m bench.peers.noonday.app embedded|cluster`: Noonday through `app.embedded(...)` and `app.cluster()`."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.fleet import Fleet, FleetSize, by_role, fleet
from bench.peers.contract.speak import CALLERS, Notes, Program, by_callers, numbered, speak
from bench.peers.noonday.handlers import EACH, HANDLER, NOTES, app, keep_notes, started_by
from bench.peers.noonday.stores import Outside, OutsideDatabase, outside_file
from bench.site import Site, watching
from noonday.model.job import JobSpec
from noonday.wiring.engine_thread import new_event_loop

PAGE = 10_000
HANDLERS = "bench.peers.noonday.handlers:app"

Order = dict[str, Any]


class NoondayProgram(Program):
    """Creates jobs through the public API. Each mode adds how its engine runs."""

    outside: Outside

    def __init__(self) -> None:
        self._crons = 0
        self._engine = AsyncExitStack()

    async def create(self, order: Order) -> Order:
        jobs = numbered(order)
        match order["way"]:
            case "bulk":
                for at in range(0, len(jobs), PAGE):
                    specs = [_spec(number, due_ms, order["waitMs"]) for number, due_ms in jobs[at : at + PAGE]]
                    await app.enqueue_many(specs)
            case way:

                async def create(number: int, due_ms: int) -> None:
                    await app.enqueue(HANDLER, _payload(number, order["waitMs"]), at=_instant(due_ms))

                await by_callers(jobs, 1 if way == "single" else CALLERS, create)
        return {"created": len(jobs)}

    async def crons(self, order: Order) -> None:
        self._crons = order["jobs"]

    async def _create_crons(self) -> None:
        for at in range(0, self._crons, PAGE):
            numbers = range(at, min(at + PAGE, self._crons))
            await app.enqueue_many([app.spec_for(HANDLER, _payload(number, 0), cron="* * * * *") for number in numbers])

    async def look(self, order: Order) -> Order:
        return {"open": await self.outside.is_open(order["untilMs"])}

    async def count(self, order: Order) -> Order:
        return await self.outside.count(order["sinceMs"], order["untilMs"])


class EmbeddedProgram(NoondayProgram):
    """The engine, its handlers and the caller are in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._data = Path(os.environ["BENCH_STORE"]) / "noonday.db"
        self._notes: Notes | None = None

    async def work(self, order: Order) -> Order:
        self._notes = keep_notes(Notes(order["notes"], order["each"]))
        await self._engine.enter_async_context(app.embedded(self._data))
        self.outside = await self._engine.enter_async_context(outside_file(self._data))
        await self._create_crons()
        return {"pids": {"worker": [os.getpid()], "scheduler": [os.getpid()]}}

    async def started(self, order: Order) -> Order:
        return {"started": self._notes.started if self._notes else 0}

    async def end(self, order: Order) -> None:
        await self._engine.aclose()
        if self._notes:
            self._notes.write()


class ClusterProgram(NoondayProgram):
    """Roles are processes; this one creates the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(os.environ["BENCH_STORE"])
        self._site: Site | None = None
        self._fleet = ExitStack()
        self._notes = ""

    async def work(self, order: Order) -> Order:
        self._notes = order["notes"]
        site = self._site = Site(os.environ)
        os.environ.update(site.environment)
        started = await asyncio.to_thread(self._start, site, order)
        await self._engine.enter_async_context(app.cluster())
        self.outside = OutsideDatabase(await self._engine.enter_async_context(watching(site.settings)))
        await self._create_crons()
        roles = by_role(started.members)
        return {"pids": {"worker": roles["worker"], "scheduler": roles["scheduler"], "recorder": roles["recorder"]}}

    async def started(self, order: Order) -> Order:
        return {"started": await asyncio.to_thread(started_by, self._notes)}

    def _start(self, site: Site, order: Order) -> Fleet:
        epochs, copies = site.prepare(), order["copies"]
        environment = {**os.environ, NOTES: order["notes"], EACH: "1" if order["each"] else ""}
        roles = FleetSize(copies, copies, copies).roles()
        started = self._fleet.enter_context(fleet(roles, self._directory, environment, HANDLERS))
        site.await_settled(epochs, started.members)
        return started

    async def end(self, order: Order) -> None:
        await self._engine.aclose()
        await asyncio.to_thread(self._fleet.close)
        if self._site:
            await asyncio.to_thread(self._site.clear)


def _spec(number: int, due_ms: int, wait_ms: int) -> JobSpec:
    return app.spec_for(HANDLER, _payload(number, wait_ms), at=_instant(due_ms))


def _payload(number: int, wait_ms: int) -> dict[str, int]:
    return {"n": number, "w": wait_ms} if wait_ms else {"n": number}


def _instant(due_ms: int) -> datetime:
    return datetime.fromtimestamp(due_ms / 1000, UTC)


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


if __name__ == "__main__":
    speak({"embedded": EmbeddedProgram, "cluster": ClusterProgram}[sys.argv[1]](), runner=_run)
