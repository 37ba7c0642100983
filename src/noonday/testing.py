"""Test kit: an engine with a clock that the test controls. One hour of cron takes milliseconds.

    async with noonday.testing.engine(app) as t:
        await app.enqueue("send_report", {"to": "ada"}, delay=3600)
        t.assert_enqueued("send_report", payload={"to": "ada"})
        await t.advance(hours=1)
        assert t.executions("send_report")[0].state == "SUCCEEDED"

The real stages run in the event loop of the test, on a database in memory. They run only when the test calls them:
`run_due()` runs what is due now, and `advance()` moves the clock and runs the due jobs at each due time on the way.
`app.result(job)` runs what is due, too. While the engine is open, `app.embedded(...)` yields it, and opens no file.

`context()` makes a context, for a test that calls a handler as the function it is. `fixture(app)` makes a pytest fixture.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from noonday.extras import Extra, require

require(Extra.SERVER, "noonday.testing")

from noonday.model.ids import PARTITIONS, execution_id, new_job_id
from noonday.model.job import JobSpec, ms_of
from noonday.model.job_fields import Duration
from noonday.model.message import Dispatch, Token
from noonday.model.view import ExecutionView, JobView
from noonday.ports.clock import Clock
from noonday.runtime.immediate import run_now
from noonday.sdk.payload import to_builtins
from noonday.sdk.registry import Registry
from noonday.wiring.application import Noonday
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.engine_thread import EngineLoop
from noonday.wiring.running import FINAL_STATES, Running, latest_execution, require_success
from noonday.wiring.settings import Settings
from noonday.worker.context import Context
from noonday.worker.enqueueing import Enqueueing

T = TypeVar("T")
START = datetime(2030, 1, 1, tzinfo=UTC)
_MOST_ROUNDS = 100_000
PAGE = 10_000
MOST_SHOWN = 20
"""Maximum number of jobs that the message of a failed assertion shows."""


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

    def __init__(self, app: Noonday, embedded: Embedded, clock: ManualClock) -> None:
        self._app = app
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

    def executions(self, handler: str | Callable[..., Any] | None = None) -> list[ExecutionView]:
        """Return all executions, or those of one handler, by job and then newest first."""
        name = None if handler is None else self._name_of(handler)
        found = []
        for job in self.jobs():
            cursor: str | None = ""
            while cursor is not None:
                listing = self._engine.services.executions.list_executions(
                    OWNER, job.job_id, cursor=cursor or None, limit=PAGE
                )
                page = self._read(listing)
                found += [e for e in page.executions if name in (None, e.handler)]
                cursor = page.next
        return found

    def enqueued(self, handler: str | Callable[..., Any], payload: Any = msgspec.UNSET) -> list[JobView]:
        """Return the jobs of a handler, given by name or function, and with this payload, if one is given.

        The payload is JSON or a value of the handler's payload type, such as a dataclass or a pydantic model.
        """
        name = self._name_of(handler)
        jobs = [job for job in self.jobs() if job.target.handler == name]
        if payload is msgspec.UNSET:
            return jobs
        plain = to_builtins(payload)
        return [job for job in jobs if job.payload == plain]

    def assert_enqueued(
        self, handler: str | Callable[..., Any], payload: Any = msgspec.UNSET, *, count: int | None = None
    ) -> list[JobView]:
        """Return the jobs that `enqueued` finds. Raises AssertionError if there is none, or not as many as `count`."""
        found = self.enqueued(handler, payload)
        if (count is None and not found) or (count is not None and len(found) != count):
            expected = "at least one" if count is None else str(count)
            raise AssertionError(
                f"expected {expected} job for {self._name_of(handler)!r}, found {len(found)}; "
                f"existing jobs: {self._shown_jobs()}"
            )
        return found

    def refute_enqueued(self, handler: str | Callable[..., Any], payload: Any = msgspec.UNSET) -> None:
        """Raise AssertionError if `enqueued` finds a job."""
        self.assert_enqueued(handler, payload, count=0)

    def _name_of(self, handler: str | Callable[..., Any]) -> str:
        return handler if isinstance(handler, str) else self._app.handler_of(handler).name

    def _shown_jobs(self) -> list[str]:
        jobs = self.jobs()
        shown = [f"{job.target.handler} {msgspec.json.encode(job.payload).decode()}" for job in jobs[:MOST_SHOWN]]
        return [*shown, f"and {len(jobs) - MOST_SHOWN} more"] if len(jobs) > MOST_SHOWN else shown

    async def _round(self) -> tuple[int, bool, int]:
        """Run every stage once. Returns how many entries were tried, whether there was progress, and how many runs ended."""
        engine, now_ms = self._engine, self.clock.now_ms()
        while await engine.loops["resumer"].service.run_once(now_ms):
            pass
        await engine.loops["hydrator"].service.run_once(now_ms)
        fired = await engine.dispatcher.run_once(now_ms)
        await engine.dispatcher.drain()
        taken = await engine.worker.take_once(wait_sec=0)
        await engine.worker.start_once()
        await engine.start_announced()
        ended = await engine.worker.finish_all()
        recorded = await engine.recorder.drain()
        created = await engine.intake.child_jobs.run_once(now_ms)
        return fired, bool(taken or ended or recorded or created), ended

    async def _next_due_ms(self) -> int | None:
        """Find the next due time or end of a pause after now.

        Entries that are due already are blocked, for example by a pool without workers.
        """
        now_ms = self.clock.now_ms()
        entries = await self._store.firing.walk(range(PARTITIONS), (now_ms, "\uffff"), 2**62, 1)
        resume_ms = await self._store.jobs.next_resume_ms()
        times = [*(entry.due_ms for entry in entries), *([resume_ms] if resume_ms and resume_ms > now_ms else [])]
        return min(times, default=None)

    def _read(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a query from a synchronous function. The database is in memory, so its coroutines never wait."""
        return run_now(coroutine)


class _RunsOnDemand(Running):
    """The engine of a test, as the application uses it."""

    kit: Testing

    async def success(self, of: JobView | ExecutionView | str, timeout: Duration | None) -> ExecutionView:
        """Run what is due, and return the execution. Raises AssertionError if the execution has not ended by then."""
        await self.kit.run_due()
        view = await latest_execution(self._access, of)
        if view is None or view.state not in FINAL_STATES:
            raise AssertionError(
                f"{of if isinstance(of, str) else getattr(of, 'execution_id', None) or of.job_id} has not ended at "
                f"{self.kit.now}: {'it has no execution yet' if view is None else f'it is {view.state}'}; "
                "call advance(...) to move the clock to its time"
            )
        return require_success(view)


@asynccontextmanager
async def engine(app: Noonday, *, start: datetime = START, declared: bool = True) -> AsyncIterator[Testing]:
    """Open an engine for `app` that runs only on demand. `declared=False` omits the jobs that are declared in code."""
    clock = ManualClock(start)
    settings = Settings(data=":memory:")
    settings = msgspec.structs.replace(settings, scheduler=msgspec.structs.replace(settings.scheduler, lead_ms=0))
    embedded = await Embedded.open(settings, app.handlers, clock=clock, run=False)
    kit = Testing(app, embedded, clock)
    running = _RunsOnDemand(embedded, EngineLoop(asyncio.get_running_loop()), embedded.engine)
    running.kit = kit
    try:
        with app.engine_of_test(running):
            if declared:
                await running.declare(app.declared)
            yield kit
    finally:
        await embedded.abandon()


def fixture(app: Noonday, *, start: datetime = START, declared: bool = True) -> Any:
    """Return a pytest fixture that opens an engine for each test: `engine = noonday.testing.fixture(app)`."""
    import pytest

    async def opened() -> AsyncIterator[Testing]:
        """The engine of a test."""
        async with engine(app, start=start, declared=declared) as kit:
            yield kit

    try:
        import pytest_asyncio
    except ImportError:
        return pytest.fixture(opened)  # anyio runs it
    return pytest_asyncio.fixture(opened)


def context(
    handler: str = "handler",
    *,
    pool: str = "default",
    attempt: int = 1,
    scheduled_at: datetime = START,
    progress: Any = None,
    job_name: str | None = None,
    tenant: str = "default",
    app: Registry | None = None,
) -> Context:
    """Return a context, to call a handler with: `await send_mail(noonday.testing.context(attempt=2), Mail("ada"))`.

    `progress` is what an earlier attempt has reported. Afterwards, `ctx.progress` is what the handler reported last. Use `cancel`
    to ask the run to end. `app` is the application whose handlers `ctx.enqueue` finds: `enqueued_by` returns the jobs.
    """
    job_id, due_ms = new_job_id(), ms_of(scheduled_at)
    dispatch = Dispatch(
        execution_id=execution_id(job_id, due_ms),
        number=attempt,
        job_id=job_id,
        tenant=tenant,
        pool=pool,
        handler=handler,
        due_ms=due_ms,
        nominal_ms=due_ms,
        attempt=attempt,
        fired_ms=due_ms,
        revision=1,
        timeout_sec=None,
        heartbeat_timeout_sec=None,
        start_deadline_sec=None,
        payload=None,
        progress=None,
        trace=None,
        name=job_name,
    )
    registry = Registry() if app is None else app
    enqueueing = Enqueueing(registry.spec_for, lambda: due_ms, registry.handlers)
    return Context(dispatch, Token(attempt, due_ms), progress, _started_ms=due_ms, _enqueueing=enqueueing)


def enqueued_by(ctx: Context) -> list[JobSpec]:
    """Return the jobs that a handler has enqueued with the context that `context` made, oldest first."""
    return ctx._open_children().specs


def cancel(ctx: Context, reason: str = "CANCELLED") -> None:
    """Ask the run of a context to end, as the engine does: `ctx.cancelled` is True from now on."""
    ctx._cancel_reason = reason
