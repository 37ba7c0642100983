"""An engine inside the test: real threads on a real file, with a clock that the test may set."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from noonday import Context, Noonday
from noonday.model.job import JobSpec, JobType
from noonday.model.view import JobView
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings.loading import load_settings
from tests.scenarios.clock import SetClock
from tests.scenarios.process import PATIENCE_SEC, until


@dataclass
class Ran:
    """One entry into the handler."""

    job: str
    scheduled_at: datetime
    due_ms: int
    at_ms: int
    dispatch: int


@dataclass
class Inside:
    """The file, the clock and the runs; and the engine on the file, while it is open."""

    folder: Path
    clock: SetClock = field(default_factory=SetClock)
    ran: list[Ran] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """An event that lets `wait` go on."""
    unblock: threading.Event = field(default_factory=threading.Event)
    """An event that lets `block` release its loop."""
    engine: Any = None
    store: Any = None

    @property
    def data(self) -> Path:
        return self.folder / "noonday.db"

    @asynccontextmanager
    async def open(
        self, *, run: bool = True, handlers_loop: asyncio.AbstractEventLoop | None = None, **settings: Any
    ) -> AsyncIterator["Inside"]:
        """Open an engine. With `run=False` the test turns its loops."""
        chosen = load_settings({"data": str(self.data), "store_synchronous": "NORMAL", **settings}, {}, None)
        embedded = await Embedded.open(
            chosen, self.app().handlers, clock=self.clock, run=run, handlers_loop=handlers_loop
        )
        self.engine, self.store = embedded.engine, embedded.store
        try:
            yield self
        finally:
            await (embedded.close() if run else embedded.abandon())

    async def create(self, app_handler: str = "note", **fields: Any) -> JobView:
        spec = self.app().spec_for(app_handler)
        wanted = {"type": JobType.ONE_TIME, **fields}
        return await self.engine.services.jobs.create(OWNER, JobSpec(target=spec.target, **wanted))  # type: ignore[no-any-return]

    def runs(self, job: JobView) -> list[Ran]:
        return [ran for ran in self.ran if ran.job == job.job_id]

    async def job(self, job: JobView) -> JobView:
        return await self.engine.services.job_queries.get_job(OWNER, job.job_id)  # type: ignore[no-any-return]

    async def occurrences(self, job: JobView) -> list[tuple[str, int]]:
        """The outcomes of the times of a job until now, with their counts."""
        from_ms, to_ms = round(job.created_at.timestamp() * 1000), self.clock.now_ms()
        page = await self.engine.services.occurrences.list_occurrences(OWNER, job.job_id, from_ms=from_ms, to_ms=to_ms)
        return [(each.outcome, each.count) for each in page.occurrences]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.data}?mode=ro", uri=True, timeout=PATIENCE_SEC)) as conn:
            return conn.execute(sql).fetchall()

    async def came_round(self, times: int = 2) -> None:
        """Wait until every loop that could fire something has completed some rounds."""
        await asyncio.gather(*(self._came_round(name, times) for name in ("dispatcher", "hydrator", "sweeper")))

    async def turn(self) -> None:
        """Fire, take and start due executions, and record ended ones, in one round."""
        await self.engine.dispatcher.run_once(self.clock.now_ms())
        await self.engine.dispatcher.drain()
        await self.engine.worker.take_once(wait_sec=0)
        await self.engine.worker.start_once()
        await self.engine.start_announced()
        await asyncio.sleep(0.01)
        await self.engine.worker.report_once()
        await self.engine.recorder.drain()

    async def tick(self) -> None:
        """Send a heartbeat of the worker, a tick of the recorder, and run the sweeper by that tick."""
        await self.engine.worker.watch_once()
        await self.engine.worker.report_once()
        ticking = asyncio.create_task(self.engine.recorder.tick_forever())
        await asyncio.sleep(0)
        ticking.cancel()
        await self.engine.recorder.run_once(self.clock.now_ms())
        await self.engine.loops["sweeper"].service.run_once(self.clock.now_ms())

    async def _came_round(self, name: str, times: int) -> None:
        loop = self.engine.loops[name]
        for _ in range(times):
            before = loop.last_round_at
            await until(lambda before=before: loop.last_round_at > before)

    def app(self) -> Noonday:
        app = Noonday()

        @app.handler("note")
        def note(ctx: Context) -> None:
            self._note(ctx)

        @app.handler("wait")
        async def wait(ctx: Context) -> None:
            self._note(ctx)
            await self.go.wait()

        @app.handler("block")
        async def block(ctx: Context) -> None:
            self._note(ctx)
            self.unblock.wait()

        @app.handler("hurry")
        async def hurry(ctx: Context) -> None:
            self._note(ctx)

        @app.handler("fail")
        def fail(ctx: Context) -> None:
            self._note(ctx)
            raise ValueError("told to")

        return app

    def _note(self, ctx: Context) -> None:
        dispatch = ctx._dispatch
        self.ran.append(Ran(ctx.job_id, ctx.scheduled_at, dispatch.due_ms, self.clock.now_ms(), dispatch.number))
