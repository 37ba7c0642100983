"""A running engine, embedded or in a cluster, as an application uses it."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import structlog

from noonday.model.caller import Caller
from noonday.model.errors import EngineStopped, ExecutionFailed, NoondayError, StoreUnavailable
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.job_fields import Duration
from noonday.model.view import ExecutionView, JobView, PoolSettings
from noonday.sdk.executions import result_timeout
from noonday.sdk.spec import seconds_of
from noonday.wiring.engine_queries import OWNER, EngineAccess, EngineQueries
from noonday.wiring.engine_thread import EngineLoop

if TYPE_CHECKING:
    from noonday.wiring.serving import ServedApi

log = structlog.get_logger("noonday.application")
CODE = "code:"
"""Prefix of the unique keys of jobs that are declared in code."""
EXECUTION_VERSION = "8"
"""UUID version of execution ids. Job ids have version 7."""
PAGE = 5_000
"""Maximum number of jobs that one transaction creates."""
FINAL_STATES = frozenset({"SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"})


class Watched(Protocol):
    """An engine that reports its health."""

    @property
    def failed(self) -> "asyncio.Future[None]": ...
    def ready(self) -> list[str]: ...


class Running(EngineQueries):
    """The engine of an application, embedded or in a cluster. Its methods on jobs are named as those of `Client`."""

    def __init__(
        self, access: EngineAccess, thread: EngineLoop, watched: Watched, served: "ServedApi | None" = None
    ) -> None:
        super().__init__(access, thread)
        self._watched = watched
        self._served = served
        self._has_ended = False

    def end(self) -> None:
        """Note that the block of the application ends: the store is about to be closed."""
        self._has_ended = True

    @property
    def url(self) -> str | None:
        """The URL of the API that `app.embedded(..., serve=...)` serves, else None."""
        return self._served.url if self._served else None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the engine."""
        return self._thread.loop

    @property
    def healthy(self) -> bool:
        """True if the engine works. For a readiness probe; `problems` returns the reasons why it does not."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return the reasons why the engine does not work at present; an empty list if it works."""
        return self._watched.ready() + (self._served.problems() if self._served else [])

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

    async def success(self, of: JobView | ExecutionView | str, timeout: Duration | None) -> ExecutionView:
        """Wait for the success of an execution, or of the latest one of a job. Raises ExecutionFailed and ResultTimeout."""
        limit = None if timeout is None else seconds_of(timeout, "/timeout")
        seen: ExecutionView | None = None
        wait = 0.005
        try:
            async with asyncio.timeout(limit):
                while True:
                    seen = await self._latest(of)
                    if seen is not None and seen.state in FINAL_STATES:
                        return require_success(seen)
                    self._refuse_if_stopped()
                    await asyncio.sleep(wait)
                    wait = min(0.5, wait * 1.5)
        except TimeoutError as late:
            raise result_timeout(of, seen, limit or 0) from late

    async def _latest(self, of: JobView | ExecutionView | str) -> ExecutionView | None:
        try:
            return await self._thread.call(lambda: latest_execution(self._access, of))
        except StoreUnavailable as error:
            if self._has_ended:
                raise EngineStopped("the block of this application ended before the result was there") from error
            raise

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


def require_success(view: ExecutionView) -> ExecutionView:
    """Return an execution that has ended. Raises ExecutionFailed if it did not succeed."""
    if view.state == "SUCCEEDED":
        return view
    why = f": {view.error.type}: {view.error.message}" if view.error else ""
    raise ExecutionFailed(f"execution {view.execution_id} is {view.state}{why}", state=view.state)
