"""The `Noonday` application object: handlers, declared jobs, and an engine or cluster client inside a Python program."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from noonday.model.errors import Conflict
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.view import ExecutionView, JobView
from noonday.sdk.executions import result_timeout
from noonday.sdk.registry import Registry
from noonday.sdk.spec import Duration, JobFields, seconds_of
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_thread import engine_thread, opened
from noonday.wiring.running import OWNER, ClusterAccess, Running
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings

if TYPE_CHECKING:
    from noonday.wiring.transactions import Transactions


class Noonday(Registry):
    """An application: its handlers, its declared jobs and, while it is connected, its engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Running | None = None
        self._engine_of_test: Running | None = None
        self._settings: Settings | None = None
        """Settings of the cluster that this application is connected to; None otherwise."""
        self._in_transactions: Transactions | None = None

    @asynccontextmanager
    async def embedded(
        self, data: str | Path = "noonday.db", *, concurrency: Mapping[str, int] | None = None, **settings: Any
    ) -> AsyncIterator[Running]:
        """Run the engine in this process, on one SQLite file, until the block ends.

        The engine has its own thread and event loop. Coroutine handlers run on the event loop of this block, so they may use
        objects that the application has opened there. `settings` are those of `noonday.toml`, such as `worker_drain_sec=5`.
        In a test, the block uses the engine of the test, and opens no file.
        """
        if self._engine_of_test is not None:
            yield self._engine_of_test
            return
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

    @contextmanager
    def engine_of_test(self, engine: Running) -> Iterator[None]:
        """Use an engine that the test kit has opened, also inside `embedded` blocks of the application."""
        if self.engine is not None:
            raise Conflict("this application already has an engine: leave its `embedded` or `cluster` block first")
        self.engine = self._engine_of_test = engine
        try:
            yield
        finally:
            self.engine = self._engine_of_test = None

    @asynccontextmanager
    async def cluster(self, *, config: Path | None = None, **settings: Any) -> AsyncIterator[Running]:
        """Create and query the jobs of a cluster until the block ends. Workers run elsewhere.

        `settings` are those of `noonday.toml`, such as `postgres_url=...`; other values come from the file and NOONDAY_*. Jobs
        that are declared in code are created or updated. Pools that they name are created.
        """
        from noonday.wiring.cluster.node import Node, Role  # imports the clients of all servers

        if self.engine is not None:
            raise Conflict("this application already has an engine: leave its `embedded` or `cluster` block first")
        chosen = load_settings(settings, os.environ, config)
        async with (
            engine_thread() as thread,
            opened(thread, lambda: Node.open(chosen, [Role.API]), Node.stop) as node,
        ):
            self.engine = Running(ClusterAccess(node.intake, node.drivers), thread, node)
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
        """Return the result of an execution, or of the latest execution of a job.

        Raises ExecutionFailed, and ResultTimeout (a TimeoutError) that says what the execution is doing.
        """
        running = self._running()
        limit = None if timeout is None else seconds_of(timeout, "/timeout")
        try:
            async with asyncio.timeout(limit):
                return await running.result(of)
        except TimeoutError as late:
            raise result_timeout(of, await running.find_execution(of), limit or 0) from late

    def _running(self) -> Running:
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
