"""The pools that remote workers serve in this process: a worker for each, from the first take until nobody takes any more."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import structlog

from noonday.model.errors import Conflict, InvalidInput
from noonday.model.pool import BUILT_IN_POOLS
from noonday.ports.clock import Clock
from noonday.runtime.supervise import Tasks
from noonday.worker.remote import Lease, RemoteRuns, RemoteWorker
from noonday.worker.remote_handlers import RemoteHandlers
from noonday.worker.worker import Worker

log = structlog.get_logger("noonday.worker")
IDLE_SEC = 60.0
"""Seconds without a take and without a run after which a pool is left."""
MAX_POOLS = 100
"""Maximum number of pools that remote workers serve in one process."""
_DRAIN_POLL_SEC = 0.05


@dataclass(eq=False)
class _Pool:
    """A pool that is served here."""

    handlers: RemoteHandlers
    worker: Worker
    tasks: Tasks = field(default_factory=Tasks)
    used_at: float = 0.0


class RemotePools:
    """Opens a worker for a pool at its first take, and closes it when it is no longer used."""

    def __init__(
        self, runs: RemoteRuns, clock: Clock, allowed: Collection[str], new_worker: Callable[[RemoteHandlers], Worker]
    ) -> None:
        """`allowed`: patterns of the pools that may be served, such as `go-*`."""
        self.runs = runs
        self._clock = clock
        self._allowed = allowed
        self._new_worker = new_worker
        self._pools: dict[str, _Pool] = {}
        self._opening = asyncio.Lock()
        self._is_draining = False

    @property
    def names(self) -> list[str]:
        """The pools that are served."""
        return list(self._pools)

    @property
    def has_failed(self) -> bool:
        """True if a loop of a worker ended with an error."""
        return any(pool.tasks.failed.done() for pool in self._pools.values())

    async def take(
        self,
        worker: RemoteWorker,
        pool: str,
        handlers: frozenset[str],
        limit: int,
        wait_sec: float,
        gone: asyncio.Event,
    ) -> list[Lease]:
        """Return up to `limit` runs of these handlers. The first take opens the pool and registers the handlers.

        Raises InvalidInput for a pool that may not be served, Conflict, and BusUnavailable.
        """
        self._check(pool)
        if self._is_draining:
            return []
        served = await self._open(pool)
        served.used_at = self._clock.monotonic()
        if served.handlers.note(worker.tenant, handlers):
            await served.worker.greet()
        return await self.runs.take(worker, pool, handlers, limit, wait_sec, gone)

    async def run_once(self, now_ms: int) -> int:
        """End what lapsed, and close the pools that are not used. Returns how much it did."""
        count = self.runs.expire()
        now = self._clock.monotonic()
        for name, pool in list(self._pools.items()):
            pool.handlers.forget_absent()
            if self.runs.is_used(name):
                pool.used_at = now
            elif now - pool.used_at >= IDLE_SEC:
                del self._pools[name]
                await self._close(pool, 0.0)
                count += 1
        return count

    async def drain(self, drain_sec: float) -> None:
        """Give nothing out any more, return what has not started, and wait at most `drain_sec` for the other runs to end."""
        self._is_draining = True
        self.runs.drain()
        until = self._clock.monotonic() + drain_sec
        while self.runs.started and self._clock.monotonic() < until:
            await self._clock.sleep(_DRAIN_POLL_SEC)

    async def close(self, drain_sec: float) -> None:
        """Drain, and leave all pools. Runs that are still out are interrupted, at no attempt."""
        await self.drain(drain_sec)
        pools, self._pools = list(self._pools.values()), {}
        await asyncio.gather(*(self._close(pool, 0.0) for pool in pools))

    def _check(self, pool: str) -> None:
        if pool in BUILT_IN_POOLS:
            raise InvalidInput.of("/pool", f"pool {pool!r} is built in: only Noonday's own workers serve it", pool)
        if not any(fnmatchcase(pool, pattern) for pattern in self._allowed):
            detail = f"remote workers may not serve pool {pool!r}: the setting remote.pools does not allow it"
            raise InvalidInput.of("/pool", detail, pool, allowed=list(self._allowed))

    async def _open(self, name: str) -> _Pool:
        async with self._opening:
            if found := self._pools.get(name):
                return found
            if len(self._pools) >= MAX_POOLS:
                raise Conflict(f"remote workers serve {len(self._pools)} pools in this process, {MAX_POOLS} at most")
            handlers = RemoteHandlers(name, self.runs, self._clock)
            pool = _Pool(handlers, self._new_worker(handlers), used_at=self._clock.monotonic())
            await pool.worker.open()
            for loop, coroutine in pool.worker.loops().items():
                pool.tasks.spawn(coroutine, f"remote {name} {loop}")
            self._pools[name] = pool
            log.info("remote pool opened", pool=name, worker=pool.worker.id)
            return pool

    async def _close(self, pool: _Pool, drain_sec: float) -> None:
        await pool.worker.close(drain_sec)
        await pool.tasks.end()
        log.info("remote pool closed", pool=pool.handlers.pool, worker=pool.worker.id)
