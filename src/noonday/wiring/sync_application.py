"""An application in code without an event loop: views of Django and Flask, scripts, and plain functions in threads."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from noonday.model.errors import Conflict, EngineStopped
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.job_fields import Duration
from noonday.model.view import ExecutionView, JobView
from noonday.sdk.enqueued import EnqueuedJob
from noonday.sdk.spec import EnqueueArguments
from noonday.sdk.sync import SyncClient
from noonday.wiring.connected import Connected, JobCommands
from noonday.wiring.engine_queries import OWNER
from noonday.worker.context import Context

if TYPE_CHECKING:
    from noonday.wiring.application import Noonday

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

LOOK_SEC = 0.5
"""Time between checks whether the loop that is waited for still runs, in seconds."""


class SyncApplication:
    """`app.sync`: the methods of `Noonday` that use jobs, without `async`. Any number of threads may call them.

    They use the server of `app.connect_sync`, else the engine or the server whose block is entered on another thread's loop.
    """

    def __init__(self, app: "Noonday") -> None:
        self._app = app
        self._client: SyncClient | None = None

    def use(self, client: SyncClient) -> None:
        """Use this client from now on, and close the one that was used before."""
        former, self._client = self._client, client
        if former is not None:
            former.close()

    @overload
    def enqueue(
        self,
        handler: Callable[[Context], Coroutine[Any, Any, R]],
        payload: None = None,
        **arguments: Unpack[EnqueueArguments],
    ) -> EnqueuedJob[R]: ...

    @overload
    def enqueue(
        self,
        handler: Callable[[Context, P], Coroutine[Any, Any, R]],
        payload: P,
        **arguments: Unpack[EnqueueArguments],
    ) -> EnqueuedJob[R]: ...

    @overload
    def enqueue(
        self, handler: Callable[[Context], R], payload: None = None, **arguments: Unpack[EnqueueArguments]
    ) -> EnqueuedJob[R]: ...

    @overload
    def enqueue(
        self, handler: Callable[[Context, P], R], payload: P, **arguments: Unpack[EnqueueArguments]
    ) -> EnqueuedJob[R]: ...

    @overload
    def enqueue(self, handler: str, payload: Any = None, **arguments: Unpack[EnqueueArguments]) -> EnqueuedJob[Any]: ...

    def enqueue(
        self, handler: str | Callable[..., Any], payload: Any = None, **arguments: Unpack[EnqueueArguments]
    ) -> Any:
        """Create a job, as `Noonday.enqueue`.

        `connection` is a connection to the cluster's database, a Connection of psycopg 3 or of Django, with an open
        transaction of the caller. No engine and no server are needed for that.
        """
        fields: dict[str, Any] = {**arguments}
        connection = fields.pop("connection", None)
        spec = self._app.spec_for(handler, payload, **fields)
        if connection is not None:
            return self._app.transactions().create_now(OWNER, connection, spec)
        return self._run(lambda jobs: jobs.create(spec))

    def enqueue_many(self, specs: Sequence[JobSpec], *, connection: Any = None) -> list[JobId]:
        """Create jobs, as `Noonday.enqueue_many`. `connection` is that of `enqueue`."""
        if connection is not None:
            return self._app.transactions().create_many_now(OWNER, connection, specs)
        return self._run(lambda jobs: jobs.create_many(specs))

    @overload
    def result(self, of: EnqueuedJob[R], timeout: Duration | None = None) -> R: ...

    @overload
    def result(self, of: JobView | ExecutionView | str, timeout: Duration | None = None) -> Any: ...

    def result(self, of: JobView | ExecutionView | str, timeout: Duration | None = None) -> Any:
        """Wait for a result, as `Noonday.result`."""
        return self._app.result_of(self._run(lambda jobs: jobs.success(of, timeout)))

    def cancel(self, of: ExecutionView | str) -> ExecutionView:
        """Request the cancellation of an execution, as `Noonday.cancel`."""
        return self._run(lambda jobs: cancel(jobs, of))

    def _run(self, do: Callable[[JobCommands], Coroutine[Any, Any, T]]) -> T:
        if _runs_event_loop():
            raise Conflict(
                "app.sync waits, and this thread runs an event loop, which must not wait: use `await app.enqueue(...)`, or "
                "call app.sync in another thread"
            )
        if self._client is not None:
            return self._client.portal.run(_over(self._client, do))
        jobs = self._app.running()
        return _wait_for(do(jobs), jobs.loop)


async def _over(client: SyncClient, do: Callable[[JobCommands], Coroutine[Any, Any, T]]) -> T:
    return await do(Connected(client.client, asyncio.get_running_loop()))


async def cancel(jobs: JobCommands, of: ExecutionView | str) -> ExecutionView:
    return await jobs.cancel(of if isinstance(of, str) else of.execution_id)


def _runs_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _wait_for(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine on the loop of another thread and wait. Raises EngineStopped if the loop ends before it."""
    ended = EngineStopped("the block of this application ended before the call did")
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError as closed:
        coroutine.close()
        raise ended from closed
    try:
        while not concurrent.futures.wait([future], LOOK_SEC).done:
            if not loop.is_running():
                raise ended
        return future.result()
    except concurrent.futures.CancelledError as cancelled:
        raise ended from cancelled
    finally:
        future.cancel()
