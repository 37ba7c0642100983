"""The `Noonday` application object: handlers, declared jobs, and an engine or cluster client inside a Python program."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import structlog

from noonday.intake.services import IntakeServices
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, EngineStopped, ExecutionFailed, NoondayError
from noonday.model.ids import JobId, TenantId
from noonday.model.job import JobSpec
from noonday.model.view import ExecutionView, JobView, PoolSettings
from noonday.ports.queries import QueryStore
from noonday.ports.settings import SettingsStore
from noonday.sdk.registry import Registry
from noonday.sdk.spec import Duration, JobFields, seconds_of
from noonday.wiring.embedded import Embedded
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings

if TYPE_CHECKING:
    from noonday.wiring.transactions import Transactions

log = structlog.get_logger("noonday.application")
T = TypeVar("T")

OWNER = Caller(TenantId("default"), "application", frozenset({"operator"}))
CODE = "code:"
"""Prefix of the unique keys of jobs that are declared in code."""
EXECUTION_VERSION = "8"
"""UUID version of execution ids. Job ids have version 7."""
PAGE = 5_000
"""Maximum number of jobs that one transaction creates."""
_FINAL = {"SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"}


class Noonday(Registry):
    """An application: its handlers, its declared jobs and, while it is connected, its engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Running | None = None
        self._settings: Settings | None = None
        """Settings of the cluster that this application is connected to; None otherwise."""
        self._in_transactions: Transactions | None = None

    @asynccontextmanager
    async def embedded(
        self, data: str | Path = "noonday.db", *, concurrency: Mapping[str, int] | None = None, **settings: Any
    ) -> AsyncIterator["Running"]:
        """Run the engine in this process, on one SQLite file, until the block ends.

        The engine has its own thread and event loop. Coroutine handlers run on the event loop of this block, so they may use
        objects that the application has opened there. `settings` are those of `noonday.toml`, such as `worker_drain_sec=5`.
        """
        if self.engine is not None:
            raise Conflict("this application already has an engine: leave its `embedded` or `cluster` block first")
        chosen = load_settings({"data": str(data), **settings}, {}, None)
        loop = asyncio.get_running_loop()

        def open_engine() -> Coroutine[Any, Any, Embedded]:
            return Embedded.open(chosen, self.handlers, handlers_loop=loop, concurrency=concurrency)

        async with engine_thread() as thread, opened(thread, open_engine, Embedded.close) as embedded:
            self.engine = Running(embedded, thread, embedded.engine)
            try:
                await self.engine.declare(self.declared)
                yield self.engine
            finally:
                self.engine = None

    @asynccontextmanager
    async def cluster(self, *, config: Path | None = None, **settings: Any) -> AsyncIterator["Running"]:
        """Create and query the jobs of a cluster until the block ends. Workers run elsewhere.

        `settings` are those of `noonday.toml`, such as `postgres_url=...`; other values come from the file and NOONDAY_*. Jobs
        that are declared in code are created or updated. Pools that they name are created.
        """
        from noonday.wiring.cluster import Node, Role  # imports the clients of all servers

        if self.engine is not None:
            raise Conflict("this application already has an engine: leave its `embedded` or `cluster` block first")
        chosen = load_settings(settings, os.environ, config)
        async with (
            engine_thread() as thread,
            opened(thread, lambda: Node.open(chosen, [Role.API]), Node.stop) as node,
        ):
            self.engine = Running(_EngineAccess(node.intake, node.drivers), thread, node)
            self._settings, self._in_transactions = chosen, None
            try:
                await self.engine.make_pools(self.declared)
                await self.engine.declare(self.declared)
                yield self.engine
            finally:
                self.engine = self._settings = self._in_transactions = None

    async def enqueue(
        self,
        handler: str | Callable[..., Any],
        payload: Any = None,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        pool: str | None = None,
        connection: Any = None,
        **fields: Unpack[JobFields],
    ) -> JobView:
        """Create a job that runs now, `at` a time, after a `delay`, on a `cron`, or `every` interval.

        `connection` is a connection to the cluster's database, of asyncpg or an AsyncConnection of psycopg 3, with an open
        transaction of the caller. That transaction then creates the job: the job exists after the commit, and never exists
        after a rollback. No engine is needed for that. Raises Conflict, and changes nothing, if the `unique_key` is in use.
        """
        spec = self.spec_for(
            handler, payload, at=at, delay=delay, cron=cron, every=every, timezone=timezone, pool=pool, **fields
        )
        if connection is not None:
            return await self._transactions().create(OWNER, connection, spec)
        return await self._running().create(spec)

    async def enqueue_many(self, specs: Sequence[JobSpec], *, connection: Any = None) -> list[JobId]:
        """Create jobs from specs of `spec_for`, in transactions of at most 5,000 jobs. Each creates all of its jobs or none.

        With `connection` (see `enqueue`), the caller's transaction creates all of them.
        """
        if connection is not None:
            return await self._transactions().create_many(OWNER, connection, specs)
        return await self._running().create_many(specs)

    async def result(self, of: JobView | ExecutionView | str, timeout: Duration | None = None) -> Any:
        """Return the result of an execution, or of the latest execution of a job. Raises ExecutionFailed or TimeoutError."""
        limit = None if timeout is None else seconds_of(timeout, "/timeout")
        async with asyncio.timeout(limit):
            return await self._running().result(of)

    def _running(self) -> "Running":
        if self.engine is None:
            raise Conflict(
                "this application has no engine: use `async with app.embedded(...)` or `app.cluster(...)`, "
                "or `Noonday.client(url, token)`"
            )
        return self.engine

    def _transactions(self) -> "Transactions":
        from noonday.wiring.transactions import Transactions

        if self.engine is not None and self._settings is None:
            raise Conflict("`connection` needs a cluster: an embedded engine stores its jobs in its own SQLite file")
        if self._in_transactions is None:
            self._in_transactions = Transactions(self._settings or load_settings({}, os.environ))
        return self._in_transactions


class _Intake(Protocol):
    """The services of an engine."""

    @property
    def services(self) -> IntakeServices: ...


class _Store(Protocol):
    @property
    def query_store(self) -> QueryStore: ...
    @property
    def settings_store(self) -> SettingsStore: ...


class EngineAccess(Protocol):
    """Access to an embedded engine or to a cluster."""

    @property
    def engine(self) -> _Intake: ...
    @property
    def store(self) -> _Store: ...


@dataclass(frozen=True)
class _EngineAccess:
    engine: _Intake
    store: _Store


class Watched(Protocol):
    """An engine that reports its health."""

    @property
    def failed(self) -> "asyncio.Future[None]": ...
    def ready(self) -> list[str]: ...


class Running:
    """The engine of an application, embedded or in a cluster."""

    def __init__(self, access: EngineAccess, thread: "EngineLoop", watched: Watched) -> None:
        self._access = access
        self._thread = thread
        self._watched = watched

    @property
    def healthy(self) -> bool:
        """Whether the engine works. For a readiness probe; `problems` returns the reasons why it does not."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return the reasons why the engine does not work at present; an empty list if it works."""
        return self._watched.ready()

    def _refuse_if_stopped(self) -> None:
        """Raise EngineStopped if the engine has failed: a job accepted now would not fire before the next start."""
        if self._watched.failed.done():
            raise EngineStopped(f"the engine of this application has stopped: {self._watched.failed.exception()!r}")

    async def create(self, spec: JobSpec) -> JobView:
        self._refuse_if_stopped()
        return await self._thread.call(lambda: self._access.engine.services.jobs.create(OWNER, spec))

    async def create_many(self, specs: Sequence[JobSpec]) -> list[JobId]:
        self._refuse_if_stopped()
        return await self._thread.call(lambda: self._create_pages(specs))

    async def _create_pages(self, specs: Sequence[JobSpec]) -> list[JobId]:
        """Create jobs page by page. While the store writes one page, the next one is prepared."""
        jobs = self._access.engine.services.jobs
        created: list[JobId] = []
        writing: asyncio.Task[list[JobId]] | None = None
        for start in range(0, len(specs), PAGE):
            following = asyncio.create_task(jobs.create_ids(OWNER, specs[start : start + PAGE]))
            if writing:
                created += await writing
            writing = following
        return created + (await writing if writing else [])

    async def get_job(self, job_id: str) -> JobView:
        return await self._thread.call(lambda: self._access.engine.services.job_queries.get_job(OWNER, job_id))

    async def get_execution(self, execution: str) -> ExecutionView:
        return await self._thread.call(lambda: self._access.engine.services.executions.get(OWNER, execution))

    async def cancel(self, execution: str) -> ExecutionView:
        return await self._thread.call(lambda: self._access.engine.services.executions.cancel(OWNER, execution))

    async def delete(self, job_id: str) -> JobView:
        return await self._thread.call(lambda: self._access.engine.services.jobs.delete(OWNER, job_id))

    async def result(self, of: JobView | ExecutionView | str) -> Any:
        wait = 0.005
        while True:
            view = await self._thread.call(lambda: latest_execution(self._access, of))
            if view is not None and view.state in _FINAL:
                return result_of(view)
            self._refuse_if_stopped()
            await asyncio.sleep(wait)
            wait = min(0.5, wait * 1.5)

    async def make_pools(self, specs: Sequence[JobSpec]) -> None:
        await self._thread.call(lambda: make_pools(self._access, specs))

    async def declare(self, specs: Sequence[JobSpec]) -> None:
        await self._thread.call(lambda: declare(self._access, specs))


async def make_pools(access: EngineAccess, specs: Sequence[JobSpec], caller: Caller = OWNER) -> None:
    """Create the pools of declared jobs, which may not have a worker yet."""
    pools = {spec.target.pool for spec in specs}
    for pool in sorted(pools.difference(await access.store.settings_store.pool_names())):
        await access.engine.services.pools.put(caller, pool, PoolSettings())


async def declare(access: EngineAccess, specs: Sequence[JobSpec], caller: Caller = OWNER) -> None:
    """Create or update the jobs that are declared in code. A job that is no longer declared is logged, not deleted."""
    for created in await access.engine.services.jobs.create_many(caller, list(specs)):
        if isinstance(created, NoondayError):
            raise created
    declared = {spec.unique_key for spec in specs}
    for key, job_id in await access.store.query_store.declared_keys(caller.tenant, CODE):
        if key not in declared:
            log.warning("job no longer declared in code; delete it to stop it", key=key, job=job_id)


async def latest_execution(access: EngineAccess, of: JobView | ExecutionView | str) -> ExecutionView | None:
    """Find the execution of a view or an id. For a job, this is its latest execution, or None if it has none yet."""
    executions = access.engine.services.executions
    name = of if isinstance(of, str) else getattr(of, "execution_id", None) or of.job_id
    if name[14:15] == EXECUTION_VERSION:
        return await executions.get(OWNER, name)
    page = await executions.list_executions(OWNER, name, limit=1)
    return page.executions[0] if page.executions else None


def result_of(view: ExecutionView) -> Any:
    if view.state == "SUCCEEDED":
        return view.result
    why = f": {view.error.type}: {view.error.message}" if view.error else ""
    raise ExecutionFailed(f"execution {view.execution_id} is {view.state}{why}", state=view.state)


class EngineLoop:
    """The event loop of an engine. Any other loop may call it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    async def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the engine's loop and await its result on the caller's loop."""
        if asyncio.get_running_loop() is self.loop:
            return await make()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self.loop))


class EngineThread(EngineLoop):
    """A thread with its own event loop, so that an application that blocks its loop does not delay the engine."""

    def __init__(self) -> None:
        super().__init__(new_event_loop())
        self._thread = threading.Thread(target=self._run, name="noonday-engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


@asynccontextmanager
async def engine_thread() -> AsyncIterator[EngineThread]:
    """Run a thread for an engine. The thread ends with the block, even if the end of the block is cancelled."""
    thread = EngineThread()
    try:
        yield thread
    finally:
        await to_the_end(asyncio.to_thread(thread.close))


@asynccontextmanager
async def opened(
    thread: EngineThread, open_it: Callable[[], Coroutine[Any, Any, T]], close: Callable[[T], Coroutine[Any, Any, None]]
) -> AsyncIterator[T]:
    """Open a resource on the engine's loop, and close it when the block ends. A cancellation interrupts neither step."""
    opening = asyncio.ensure_future(thread.call(open_it))
    try:
        await to_the_end(opening)
    except asyncio.CancelledError:
        if not opening.cancelled() and opening.exception() is None:
            await to_the_end(thread.call(lambda: close(opening.result())))
        raise
    try:
        yield opening.result()
    finally:
        await to_the_end(thread.call(lambda: close(opening.result())))


async def to_the_end(awaitable: Awaitable[T]) -> T:
    """Await something to its end. A cancellation that arrives meanwhile is raised afterwards, in place of the result."""
    ending = asyncio.ensure_future(awaitable)
    cancelled = False
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return ending.result()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: of uvloop if it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
