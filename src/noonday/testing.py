"""Test kit: an engine with a clock that the test controls. One hour of cron takes milliseconds.

    async with noonday.testing.engine(app) as t:
        await app.enqueue("send_report", {"to": "ada"}, delay=3600)
        t.assert_enqueued("send_report", payload={"to": "ada"})
        await t.advance(hours=1)
        assert t.executions("send_report")[0].state == "SUCCEEDED"

The real stages run in the event loop of the test, on a database in memory. They run only when the test calls them:
`run_due()` runs what is due now, and `advance()` moves the clock and runs the due jobs at each due time on the way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from noonday.extras import Extra, require

require(Extra.SERVER, "noonday.testing")

from noonday.model.ids import PARTITIONS
from noonday.model.job import ms_of
from noonday.model.view import ExecutionView, JobView
from noonday.ports.clock import Clock
from noonday.wiring.application import Noonday
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_thread import EngineLoop
from noonday.wiring.running import OWNER, Running
from noonday.wiring.settings import Settings

T = TypeVar("T")
START = datetime(2030, 1, 1, tzinfo=UTC)
_MOST_ROUNDS = 100_000
PAGE = 10_000


class ManualClock(Clock):
    """A clock that moves only by `move_to`. Sleeping tasks wake when it reaches their time."""

    def __init__(self, start: datetime = START) -> None:
        self._now_ms = ms_of(start)
        self._start_ms = self._now_ms
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        sleeper = (self._now_ms + max(1, round(seconds * 1000)), future)
        self._sleepers.append(sleeper)
        try:
            await future
        finally:
            self._sleepers.remove(sleeper)

    def move_to(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)
        for until_ms, future in list(self._sleepers):
            if until_ms <= self._now_ms and not future.done():
                future.set_result(None)


class Testing:
    """The engine of a test, with its clock and assertions."""

    __test__ = False

    def __init__(self, embedded: Embedded, clock: ManualClock) -> None:
        self._engine = embedded.engine
        self._store = embedded.store
        self.clock = clock

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    async def run_due(self) -> int:
        """Run everything that is due now, and everything that becomes due by it. Returns the number of runs that ended."""
        ended, progressed = 0, True
        for _ in range(_MOST_ROUNDS):
            if progressed:
                # Blocked entries are tried again only after progress; otherwise they would be tried forever.
                self._engine.dispatcher.release_blocked()
            fired, progressed, runs = await self._round()
            ended += runs
            if not fired and not progressed:
                return ended
        raise AssertionError(f"due work did not end at {self.now}: does a handler enqueue itself without a delay?")

    async def advance(self, delta: timedelta | None = None, **parts: float) -> int:
        """Move the clock, as in `advance(hours=1)`, and run each job at its due time. Returns the number of runs that ended."""
        target = self.clock.now_ms() + round((delta or timedelta(**parts)).total_seconds() * 1000)
        ended = await self.run_due()
        while (due_ms := await self._next_due_ms()) is not None and due_ms <= target:
            self.clock.move_to(due_ms)
            ended += await self.run_due()
        self.clock.move_to(target)
        return ended + await self.run_due()

    async def advance_to(self, instant: datetime) -> int:
        return await self.advance(instant - self.now)

    def jobs(self) -> list[JobView]:
        """Return all jobs, oldest first."""
        jobs = list[JobView]()
        cursor: str | None = ""
        while cursor is not None:
            page = self._read(self._engine.services.job_queries.list_jobs(OWNER, cursor=cursor or None, limit=PAGE))
            jobs, cursor = [*jobs, *page.jobs], page.next
        return jobs[::-1]

    def executions(self, handler: str | None = None) -> list[ExecutionView]:
        """Return all executions, or those of one handler, by job and then newest first."""
        found = []
        for job in self.jobs():
            cursor: str | None = ""
            while cursor is not None:
                listing = self._engine.services.executions.list_executions(
                    OWNER, job.job_id, cursor=cursor or None, limit=PAGE
                )
                page = self._read(listing)
                found += [e for e in page.executions if handler in (None, e.handler)]
                cursor = page.next
        return found

    def enqueued(self, handler: str, payload: Any = msgspec.UNSET) -> list[JobView]:
        """Return the jobs of a handler, only those with an equal payload if one is given."""
        jobs = [job for job in self.jobs() if job.target.handler == handler]
        return [job for job in jobs if payload is msgspec.UNSET or job.payload == msgspec.to_builtins(payload)]

    def assert_enqueued(self, handler: str, payload: Any = msgspec.UNSET, *, count: int | None = None) -> list[JobView]:
        found = self.enqueued(handler, payload)
        if (count is None and not found) or (count is not None and len(found) != count):
            expected = "at least one" if count is None else str(count)
            existing = [f"{job.target.handler} {msgspec.json.encode(job.payload).decode()}" for job in self.jobs()]
            raise AssertionError(
                f"expected {expected} job for {handler!r}, found {len(found)}; existing jobs: {existing}"
            )
        return found

    def refute_enqueued(self, handler: str, payload: Any = msgspec.UNSET) -> None:
        self.assert_enqueued(handler, payload, count=0)

    async def _round(self) -> tuple[int, bool, int]:
        """Run every stage once. Returns how many entries were tried, whether there was progress, and how many runs ended."""
        engine, now_ms = self._engine, self.clock.now_ms()
        await engine.loops["hydrator"].service.run_once(now_ms)
        fired = await engine.dispatcher.run_once(now_ms)
        await engine.dispatcher.drain()
        taken = await engine.worker.take_once(wait_sec=0)
        await engine.worker.start_once()
        await engine.start_announced()
        ended = await engine.worker.finish_all()
        recorded = await engine.recorder.drain()
        return fired, bool(taken or ended or recorded), ended

    async def _next_due_ms(self) -> int | None:
        """Find the next due time after now. Entries that are due already are blocked, for example by a pool without workers."""
        entries = await self._store.firing.walk(range(PARTITIONS), (self.clock.now_ms(), "\uffff"), 2**62, 1)
        return entries[0].due_ms if entries else None

    def _read(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a query from a synchronous function. The database is in memory, so its coroutines never wait."""
        step: Callable[[None], Any] = coroutine.send
        while True:
            try:
                step(None)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]


@asynccontextmanager
async def engine(app: Noonday, *, start: datetime = START, declared: bool = True) -> AsyncIterator[Testing]:
    """Open an engine for `app` that runs only on demand. `declared=False` omits the jobs that are declared in code."""
    clock = ManualClock(start)
    settings = Settings(data=":memory:")
    settings = msgspec.structs.replace(settings, scheduler=msgspec.structs.replace(settings.scheduler, lead_ms=0))
    embedded = await Embedded.open(settings, app.handlers, clock=clock, run=False)
    kit = Testing(embedded, clock)
    running = Running(embedded, EngineLoop(asyncio.get_running_loop()), embedded.engine)
    app.engine = running
    try:
        if declared:
            await running.declare(app.declared)
        yield kit
    finally:
        app.engine = None
        await embedded.abandon()
