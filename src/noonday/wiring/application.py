"""The `Noonday` application object: handlers, declared jobs, and an engine, a cluster or a server to run them."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from noonday.model.errors import AlreadyRunning, Conflict, InvalidInput
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.job_fields import Duration
from noonday.model.view import ExecutionView, JobView
from noonday.sdk.client import Client
from noonday.sdk.enqueued import EnqueuedJob
from noonday.sdk.registry import Registry
from noonday.sdk.spec import EnqueueArguments
from noonday.sdk.sync import SyncClient
from noonday.sdk.tokens import TokenProvider
from noonday.wiring.connected import Connected
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER, ClusterAccess
from noonday.wiring.engine_thread import EngineThread, engine_thread, opened
from noonday.wiring.running import Running, declare
from noonday.wiring.settings import Settings
from noonday.wiring.settings.keywords import SettingKeywords
from noonday.wiring.settings.loading import load_settings
from noonday.wiring.sync_application import SyncApplication, cancel
from noonday.worker.context import Context

if TYPE_CHECKING:
    from noonday.wiring.serving import ServedApi
    from noonday.wiring.transactions import Transactions

P = TypeVar("P")
R = TypeVar("R")


class Noonday(Registry):
    """An application: its handlers, its declared jobs and, while it is connected, its engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Running | Connected | None = None
        self.sync = SyncApplication(self)
        self._engine_of_test: Running | None = None
        self._settings: Settings | None = None
        """Settings of the cluster that this application is connected to; None otherwise."""
        self._in_transactions: Transactions | None = None

    @asynccontextmanager
    async def embedded(
        self,
        data: str | Path = "noonday.db",
        *,
        concurrency: Mapping[str, int] | None = None,
        serve: str | None = None,
        **settings: Unpack[SettingKeywords],
    ) -> AsyncIterator[Running]:
        """Run the engine in this process, on one SQLite file, until the block ends.

        The engine has its own thread and event loop. Coroutine handlers run on the event loop of this block, so they may use
        objects that the application has opened there. `settings` are those of `noonday.toml`, such as `worker_drain_sec=5`.
        In a test, the block uses the engine of the test, and opens no file.

        `serve` is an address such as `127.0.0.1:8080`, or port 0 for a free port. The API is served there until the block ends,
        with the tokens of `noonday up`, and `running.url` is its URL. Raises AlreadyRunning if another process has the file,
        and PortTaken.
        """
        if self._engine_of_test is not None:
            yield self._engine_of_test
            return
        self._refuse_second_block()
        chosen = load_settings({"data": str(data), **settings, **_address_in(serve, settings)}, {}, None)
        loop = asyncio.get_running_loop()

        async def open_engine() -> Embedded:
            try:
                return await Embedded.open(chosen, self.handlers, handlers_loop=loop, concurrency=concurrency)
            except AlreadyRunning as running:
                raise _second_engine(running) from running

        async with engine_thread() as thread, AsyncExitStack() as stack:
            listener = None if serve is None else stack.enter_context(await _listener_at(serve, chosen))
            embedded = await stack.enter_async_context(opened(thread, open_engine, Embedded.close))
            await thread.call(lambda: declare(embedded, self.declared))
            served = None
            if listener is not None:
                served = await stack.enter_async_context(_served(thread, embedded, chosen, listener))
            self.engine = running = Running(embedded, thread, embedded.engine, served)
            try:
                yield running
            finally:
                running.end()
                self.engine = None

    @contextmanager
    def engine_of_test(self, engine: Running) -> Iterator[None]:
        """Use an engine that the test kit has opened, also inside `embedded` blocks of the application."""
        self._refuse_second_block()
        self.engine = self._engine_of_test = engine
        try:
            yield
        finally:
            self.engine = self._engine_of_test = None

    @asynccontextmanager
    async def cluster(
        self, *, config: Path | None = None, **settings: Unpack[SettingKeywords]
    ) -> AsyncIterator[Running]:
        """Create and query the jobs of a cluster until the block ends. Workers run elsewhere.

        `settings` are those of `noonday.toml`, such as `postgres_url=...`; other values come from the file and NOONDAY_*. Jobs
        that are declared in code are created or updated. Pools that they name are created.
        """
        from noonday.wiring.cluster.node import Node, Role  # imports the clients of all servers

        self._refuse_second_block()
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

    @asynccontextmanager
    async def connect(
        self,
        url: str,
        token: str | None = None,
        *,
        token_provider: TokenProvider | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: Duration = 30,
    ) -> AsyncIterator[Client]:
        """Create the jobs of this application on a server until the block ends. Yields a client of the server.

        Handlers and the jobs that are declared in code run where `noonday up module:app` runs. The parameters are those of
        `Client`. The server may be away when the block is entered.
        """
        self._refuse_second_block()
        async with Client(url, token, token_provider=token_provider, token_file=token_file, timeout=timeout) as client:
            self.engine = Connected(client, asyncio.get_running_loop())
            try:
                yield client
            finally:
                self.engine = None

    def connect_sync(
        self,
        url: str,
        token: str | None = None,
        *,
        token_provider: TokenProvider | None = None,
        token_file: str | os.PathLike[str] | None = None,
        timeout: Duration = 30,
    ) -> SyncClient:
        """Make `app.sync` create the jobs of this application on a server, as `connect`. Returns a client of the server.

        It needs no block: a process may call this when it starts, and also before it forks. The client is closed at exit. A
        second call replaces and closes the first client.
        """
        client = SyncClient(url, token, token_provider=token_provider, token_file=token_file, timeout=timeout)
        self.sync.use(client)
        return client

    @overload
    async def enqueue(
        self,
        handler: Callable[[Context], Coroutine[Any, Any, R]],
        payload: None = None,
        **arguments: Unpack[EnqueueArguments],
    ) -> EnqueuedJob[R]: ...

    @overload
    async def enqueue(
        self,
        handler: Callable[[Context, P], Coroutine[Any, Any, R]],
        payload: P,
        **arguments: Unpack[EnqueueArguments],
    ) -> EnqueuedJob[R]: ...

    @overload
    async def enqueue(
        self, handler: Callable[[Context], R], payload: None = None, **arguments: Unpack[EnqueueArguments]
    ) -> EnqueuedJob[R]: ...

    @overload
    async def enqueue(
        self, handler: Callable[[Context, P], R], payload: P, **arguments: Unpack[EnqueueArguments]
    ) -> EnqueuedJob[R]: ...

    @overload
    async def enqueue(
        self, handler: str, payload: Any = None, **arguments: Unpack[EnqueueArguments]
    ) -> EnqueuedJob[Any]: ...

    async def enqueue(
        self, handler: str | Callable[..., Any], payload: Any = None, **arguments: Unpack[EnqueueArguments]
    ) -> Any:
        """Create a job that runs now, `at` a time, after a `delay`, on a `cron`, or `every` interval.

        `connection` is a connection to the cluster's database, of asyncpg or an AsyncConnection of psycopg 3, with an open
        transaction of the caller. That transaction then creates the job: the job exists after the commit, and never exists
        after a rollback. No engine is needed for that. Raises Conflict, and changes nothing, if the `unique_key` is in use.
        """
        fields: dict[str, Any] = {**arguments}
        connection = fields.pop("connection", None)
        spec = self.spec_for(handler, payload, **fields)
        if connection is not None:
            return await self.transactions().create(OWNER, connection, spec)
        return await self.running().create(spec)

    async def enqueue_many(self, specs: Sequence[JobSpec], *, connection: Any = None) -> list[JobId]:
        """Create jobs from specs of `spec_for`, in transactions of at most 5,000 jobs (on a server: 10,000).

        Each transaction creates all of its jobs or none.

        With `connection` (see `enqueue`), the caller's transaction creates all of them.
        """
        if connection is not None:
            return await self.transactions().create_many(OWNER, connection, specs)
        return await self.running().create_many(specs)

    @overload
    async def result(self, of: EnqueuedJob[R], timeout: Duration | None = None) -> R: ...

    @overload
    async def result(self, of: JobView | ExecutionView | str, timeout: Duration | None = None) -> Any: ...

    async def result(self, of: JobView | ExecutionView | str, timeout: Duration | None = None) -> Any:
        """Return the result of an execution, or of the latest execution of a job, as the type that its handler returns.

        Raises ExecutionFailed, and ResultTimeout (a TimeoutError) that says what the execution is doing.
        """
        return self.result_of(await self.running().success(of, timeout))

    async def cancel(self, of: ExecutionView | str) -> ExecutionView:
        """Request the cancellation of an execution: immediate if it has not started, else when its handler reacts."""
        return await cancel(self.running(), of)

    def running(self) -> Running | Connected:
        """Return the engine or the server that this application uses now. Raises Conflict if there is none."""
        if self.engine is None:
            raise Conflict(
                "this application has no engine and no server: enter `async with app.embedded(...)`, `app.connect(url, token)` "
                "or `app.cluster(...)`, or call `app.connect_sync(url, token)` and use `app.sync`"
            )
        return self.engine

    def _refuse_second_block(self) -> None:
        if self.engine is not None:
            raise Conflict(
                "this application already has an engine or a server: leave its `embedded`, `connect` or `cluster` block first"
            )

    def transactions(self) -> "Transactions":
        """Return what creates jobs in transactions of the application. Raises Conflict if the engine is embedded."""
        from noonday.wiring.transactions import Transactions

        if isinstance(self.engine, Running) and self._settings is None:
            raise Conflict("`connection` needs a cluster: an embedded engine stores its jobs in its own SQLite file")
        if self._in_transactions is None:
            self._in_transactions = Transactions(self._settings or load_settings({}, os.environ))
        return self._in_transactions


def _address_in(serve: str | None, settings: Mapping[str, Any]) -> dict[str, str | int]:
    if serve is None:
        return {}
    from noonday.wiring.serving import address_of  # imports the HTTP server

    if twice := [name for name in ("host", "port") if name in settings]:
        raise InvalidInput(f"serve cannot be combined with {' and '.join(twice)}: it has both, as in 127.0.0.1:8080")
    return address_of(serve)


async def _listener_at(serve: str, settings: Settings) -> socket.socket:
    from noonday.wiring.serving import listen_at

    try:
        return await listen_at(serve, settings)
    except AlreadyRunning as running:
        raise _second_engine(running) from running


def _served(
    thread: EngineThread, embedded: Embedded, settings: Settings, listener: socket.socket
) -> AbstractAsyncContextManager["ServedApi"]:
    from noonday.wiring.serving import ServedApi

    return opened(thread, lambda: ServedApi.open(embedded, settings, listener), ServedApi.close)


def _second_engine(running: AlreadyRunning) -> AlreadyRunning:
    """Return the error of a second engine on a file, in the words of an application."""
    data, process = running.context["data"], running.context["process"]
    if process == os.getpid():
        detail = (
            f"this process already runs an engine on {data}: enter one `app.embedded(...)` block when the process starts, and "
            "share its application"
        )
    else:
        number = "" if process is None else f" ({process})"
        detail = (
            f"another process{number} runs the engine on {data}, and one process can: run `noonday up module:app` once, and use "
            "app.connect(url, token) in each process of the application (docs/howto/fastapi.md)"
        )
    return AlreadyRunning(detail, data=data, process=process)
