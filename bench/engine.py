"""The engine that is measured on one machine: as `noonday up` runs it, with handlers that note when they were called."""

import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench import ROOT, BenchFailed
from bench.machine import filesystem_of, memory_mb, own_cpu_sec, settings_used
from bench.notes import Notes, Seen
from bench.rig import Memory, Rig
from bench.stored_rows import StoredRows, open_stored_rows
from noonday.model.caller import Caller
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.pool import WEBHOOKS_POOL
from noonday.model.view import TenantSettings
from noonday.wiring.embedded import Embedded
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.engine_thread import new_event_loop
from noonday.wiring.server import SWITCH_SEC
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings
from noonday.worker.host import HandlerThread

EMBEDDED = "embedded"
ENGINE = "engine"
_COUNT = ("NOONDAY_STORE_", "NOONDAY_SCHEDULER_", "NOONDAY_WORKER_", "NOONDAY_WEBHOOKS_")


def environment(*more: str) -> dict[str, str]:
    """The environment without variables that would lead a process to other data or tokens; `bench` can be imported.

    Settings of the engine count, and those that begin with one of `more`.
    """
    counts = (*_COUNT, *more)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("NOONDAY_") or name.startswith(counts)
    }
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))}


def settings_for(data: str, environ: Mapping[str, str]) -> Settings:
    """Everything by default, but what the environment says."""
    return load_settings({"data": data}, environ, Path(os.devnull))


def embedded_circumstances(settings: Settings) -> dict[str, Any]:
    return {
        "synchronous": settings.store.synchronous,
        "cache_mb": settings.store.cache_mb,
        **settings_used(settings),
        "sqlite": sqlite3.sqlite_version,
        "filesystem": filesystem_of(Path(settings.data).absolute().parent),
    }


@asynccontextmanager
async def embedded_rig(data: str) -> AsyncIterator["EmbeddedRig"]:
    settings, notes = settings_for(data, environment()), Notes()
    async with AsyncExitStack() as engine:
        embedded = await engine.enter_async_context(_running(settings, notes))
        with open_stored_rows(data) as stored_rows:
            yield EmbeddedRig(embedded, settings, notes, stored_rows, engine.aclose)


class EmbeddedRig(Rig):
    """The engine, its handlers, and who creates the jobs, in this process; the data file as somebody else reads it."""

    mode = EMBEDDED
    look_every_sec = 0.005

    def __init__(
        self,
        embedded: Embedded,
        settings: Settings,
        notes: Notes,
        stored_rows: StoredRows,
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        self.settings = settings
        self._engine = embedded.engine
        self._notes = notes
        self._stored_rows = stored_rows
        self._stop = stop

    def now_ms(self) -> int:
        return self._engine.drivers.clock.now_ms()

    async def create(self, specs: Sequence[JobSpec], caller: Caller = OWNER) -> Sequence[JobId]:
        return await self._engine.services.jobs.create_ids(caller, specs, maker_of=WEBHOOKS_POOL)

    async def put_tenant(self, tenant: str, settings: TenantSettings) -> None:
        await self._engine.services.tenants.put(OWNER, tenant, settings)

    async def make_secret(self) -> None:
        await self._engine.secrets.make_first(OWNER.tenant)

    def check(self) -> None:
        if self._engine.failed.done():
            raise BenchFailed(f"the engine stopped: {self._engine.failed.exception()!r}")

    def started(self) -> int | None:
        return len(self._notes)

    async def all_recorded(self, last_due_ms: int) -> bool:
        return self.now_ms() >= last_due_ms and not self._stored_rows.any_open()

    def used_sec(self) -> Mapping[str, float]:
        return {ENGINE: own_cpu_sec()}

    def memory_mb(self) -> Mapping[str, Memory]:
        return {ENGINE: memory_mb()}

    async def finish(self) -> Seen:
        await self._stop()
        return self._notes.seen()

    async def succeeded(self, first_ms: int, last_ms: int) -> Sequence[str]:
        return self._stored_rows.succeeded(first_ms, last_ms)

    async def count_jobs(self) -> int:
        return self._stored_rows.count_jobs()

    async def circumstances(self) -> dict[str, Any]:
        return embedded_circumstances(self.settings)


@asynccontextmanager
async def _running(settings: Settings, notes: Notes) -> AsyncIterator[Embedded]:
    sys.setswitchinterval(SWITCH_SEC)
    thread = HandlerThread(new_event_loop, "noonday-handlers")
    try:
        embedded = await Embedded.open(settings, notes.registry.handlers, handlers_loop=thread.loop)
        try:
            yield embedded
        finally:
            await embedded.close()
    finally:
        thread.close()
