"""The measured cluster: every role is a process; this process creates the jobs."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench import BenchFailed
from bench.figures import total
from bench.fleet import API, CLUSTER, WORKER, Member, Running, by_role, check_members
from bench.handlers import NOTES
from bench.machine import cpu_sec, has_ended, memory_mb, own_cpu_sec
from bench.notes import Seen, read_notes
from bench.rig import Memory, Rig
from bench.served import STOP_WITHIN_SEC, complaints_in
from bench.site import circumstances, watching
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.model.caller import Caller
from noonday.model.execution import State
from noonday.model.ids import JobId
from noonday.model.job import JobSpec
from noonday.model.pool import WEBHOOKS_POOL
from noonday.model.view import TenantSettings
from noonday.wiring.cluster.node import Node, Role
from noonday.wiring.engine_queries import OWNER
from noonday.wiring.settings import Settings
from noonday.wiring.settings.loading import load_settings

LOOK_EVERY_SEC = 0.1
PAGE = 50_000
_OPEN = """
SELECT EXISTS (SELECT 1 FROM timeline WHERE due_ms <= $1) OR EXISTS (SELECT 1 FROM executions WHERE state < 2)
"""
_SUCCEEDED = """
SELECT id::text, state, due_ms FROM executions WHERE id > $1::text::uuid ORDER BY id LIMIT $2
"""
_FIRST_ID = "00000000-0000-0000-0000-000000000000"


@asynccontextmanager
async def cluster_rig(running: Running) -> AsyncIterator["ClusterRig"]:
    settings = load_settings({}, os.environ, Path(os.devnull))
    async with watching(settings) as database:
        node = await Node.open(settings, [Role.API])
        try:
            yield ClusterRig(running, settings, node, database)
        finally:
            await node.stop()


class ClusterRig(Rig):
    """Roles and servers as they are seen from outside; the database as somebody else reads it."""

    mode = CLUSTER
    look_every_sec = 0.02

    def __init__(self, running: Running, settings: Settings, node: Node, database: PostgresDatabase) -> None:
        self.settings = settings
        self._running = running
        self._node = node
        self._database = database
        self._roles = by_role(running.members)

    def now_ms(self) -> int:
        return self._node.clock.now_ms()

    async def create(self, specs: Sequence[JobSpec], caller: Caller = OWNER) -> Sequence[JobId]:
        return await self._node.intake.services.jobs.create_ids(caller, specs, maker_of=WEBHOOKS_POOL)

    async def put_tenant(self, tenant: str, settings: TenantSettings) -> None:
        await self._node.intake.services.tenants.put(OWNER, tenant, settings)

    async def make_secret(self) -> None:
        await self._node.intake.secrets.make_first(OWNER.tenant)

    def check(self) -> None:
        if self._node.failed.done():
            raise BenchFailed(f"the process that creates jobs stopped: {self._node.failed.exception()!r}")
        check_members(self._running.members)

    def started(self) -> int | None:
        return None

    async def all_recorded(self, last_due_ms: int) -> bool:
        return not await self._database.value(_OPEN, last_due_ms)

    def used_sec(self) -> Mapping[str, float]:
        return {API: own_cpu_sec(), **cpu_sec({**self._roles, **self._running.servers})}

    def memory_mb(self) -> Mapping[str, Memory]:
        return {API: memory_mb(), **{role: _sum_of(pids) for role, pids in self._roles.items()}}

    async def finish(self) -> Seen:
        """A worker writes down what its handlers saw when it ends."""
        workers = [member for member in self._running.members if member.role == WORKER]
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
        notes = [await _notes_of(worker) for worker in workers]
        return Seen(
            [execution for each in notes for execution in each.executions],
            [at_ns for each in notes for at_ns in each.at_ns],
            sum(each.at_once for each in notes),
        )

    async def succeeded(self, first_ms: int, last_ms: int) -> Sequence[str]:
        found, last = list[str](), _FIRST_ID
        while rows := await self._database.fetch(_SUCCEEDED, last, PAGE):
            found += [
                name for name, state, due_ms in rows if state == State.SUCCEEDED and first_ms <= due_ms <= last_ms
            ]
            last = rows[-1][0]
        return found

    async def count_jobs(self) -> int:
        return int(await self._database.value("SELECT count(*) FROM jobs"))

    async def circumstances(self) -> dict[str, Any]:
        counts = {f"{role}s": len(pids) for role, pids in self._roles.items()}
        return {**counts, **await circumstances(self.settings, self._database)}


async def _notes_of(worker: Member) -> Seen:
    path, deadline = Path(worker.directory) / NOTES, time.monotonic() + STOP_WITHIN_SEC
    while not path.exists():
        if (has_ended(worker.pid) and not path.exists()) or time.monotonic() > deadline:
            raise BenchFailed(f"a worker left no notes: {complaints_in(Path(worker.directory))}")
        await asyncio.sleep(LOOK_EVERY_SEC)
    return await asyncio.to_thread(read_notes, path)


def _sum_of(pids: Sequence[int]) -> Memory:
    each = [memory_mb(pid) for pid in pids]
    now, peak = (total({str(at): one[which] for at, one in enumerate(each)}) for which in (0, 1))
    return now, peak
