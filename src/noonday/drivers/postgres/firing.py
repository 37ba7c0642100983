"""Walk the timeline, fire entries and recover orphans in PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from noonday.drivers.postgres.batch_fire import BatchFire
from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.write_sets import (
    Versioned,
    payload_of,
    settle_found,
    structs_of,
    versioned,
)
from noonday.drivers.sql.named_sql import load
from noonday.model.batch import Batch, FireRequest, FireResult, Mark, Owner, RecurringJob, Takeover
from noonday.model.execution import Outcome
from noonday.model.fence import NEVER_MS, ORPHANED_AFTER_MS
from noonday.model.firing import Entry
from noonday.model.ids import PARTITIONS, InstanceId, JobId, TenantId
from noonday.model.message import Dispatch
from noonday.model.recording import SettleResult
from noonday.ports.firing import Firing
from noonday.transitions.fire_batch import is_simple
from noonday.transitions.inputs import Inputs
from noonday.transitions.plans import read_plans
from noonday.transitions.replanning import NewTimes, is_superseded, new_times, replan
from noonday.transitions.settling import unreported
from noonday.transitions.write_set import WriteSet, as_json

SQL = load("noonday.drivers.postgres", "firing")
FIRST_KEY = "00000000-0000-0000-0000-000000000000"
LAST_KEY = "ffffffff-ffff-ffff-ffff-ffffffffffff"
POOL_DEFAULTS_MS = 2_000
"""Milliseconds for which the defaults of pools are cached."""


class PostgresFiring(Firing):
    def __init__(self, database: PostgresDatabase, lead_ms: int, *, own_clock: bool = True) -> None:
        """With `own_clock`, the server's clock decides what is due. A test sets the time itself."""
        self._database = database
        self._lead_ms = lead_ms
        self._own_clock = own_clock
        self._pool_defaults: dict[str, Mapping[str, Any]] = {}
        self._defaults_read_ms = -POOL_DEFAULTS_MS

    async def take_over(self, instance: InstanceId, partitions: Collection[int]) -> Mapping[int, Takeover]:
        rows = await self._database.fetch(SQL.take_over, instance, list(partitions))
        return {row["partition"]: Takeover(row["epoch"], InstanceId(row["former"])) for row in rows}

    async def walk(self, partitions: Collection[int], after: Mark | None, until_ms: int, limit: int) -> list[Entry]:
        due_ms, key = after or (-(2**62), FIRST_KEY)
        bounds = (due_ms, LAST_KEY if key == "\uffff" else key, until_ms, limit)
        if len(partitions) == PARTITIONS:
            rows = await self._database.fetch(SQL.walk_all, *bounds)
        else:
            rows = await self._database.fetch(SQL.walk_partitions, *bounds, list(partitions))
        return structs_of(Entry, rows)

    async def walk_tenant(
        self, tenant: TenantId, partitions: Collection[int], first: Mark, until_ms: int, limit: int
    ) -> list[Entry]:
        rows = await self._database.fetch(SQL.walk_tenant, *first, until_ms, limit, list(partitions), tenant)
        return structs_of(Entry, rows)

    async def plans(self, entries: Sequence[Entry]) -> dict[tuple[JobId, int], RecurringJob]:
        text = await self._database.value(SQL.plans, [e.tenant for e in entries], [e.key for e in entries])
        return read_plans(text)

    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        if abs(now_ms - self._defaults_read_ms) >= POOL_DEFAULTS_MS or not self._own_clock:
            await self._read_pool_defaults()
            self._defaults_read_ms = now_ms
        fire = BatchFire(self._database, owner, now_ms, None if self._own_clock else now_ms, self._lead_ms)
        requests = fire.first_of_each_key(firings)
        await fire.read_caps(requests)
        await fire.fire_simple([request for request in requests if is_simple(request)])
        await fire.fire_or_return(fire.fire_decided, [request for request in requests if not is_simple(request)])
        fired = await fire.result()
        if not self._pool_defaults:
            return fired
        dispatches = tuple(self._with_pool_defaults(dispatch) for dispatch in fired.dispatches)
        return msgspec.structs.replace(fired, dispatches=dispatches)

    async def seal(self, batches: Sequence[int]) -> None:
        await self._database.value(SQL.seal, list(batches))

    async def unsealed(self, before_ms: int, limit: int, after: int = 0) -> list[Batch]:
        rows = await self._database.fetch(SQL.unsealed, before_ms, limit, after)
        return structs_of(Batch, rows)

    async def dispatches_of(self, batch: Batch) -> list[Dispatch]:
        await self._read_pool_defaults()
        rows = await self._database.fetch(SQL.dispatches, batch.id)
        return [self._with_pool_defaults(dispatch) for dispatch in structs_of(Dispatch, rows)]

    async def requeue_orphans(
        self, fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool = True
    ) -> list[Entry]:
        stamped_after_ms = now_ms + ORPHANED_AFTER_MS if ahead else NEVER_MS

        async def read() -> list[Versioned]:
            return versioned(await self._database.value(SQL.orphans, fired_before_ms, limit, stamped_after_ms))

        settled: SettleResult = await settle_found(
            self._database, read, lambda rows: unreported(rows, Outcome.ORPHANED), now_ms
        )
        return list(settled.entries)

    async def count_due(self, now_ms: int) -> dict[str, tuple[int, int]]:
        rows = await self._database.fetch(SQL.count_due, now_ms)
        return {row["pool"]: (row["due"], row["oldest_ms"]) for row in rows}

    async def zone_data(self) -> str | None:
        version: str | None = await self._database.value(SQL.meta, "zone_data")
        return version

    async def replan_again(self, newest: str) -> None:
        async with self._database.transaction() as session:
            await session.execute(SQL.set_meta, "replan_mark", f"{newest}\n")
            await session.execute(SQL.forget_meta, "zone_data")

    async def replan(self, version: str, limit: int, now_ms: int) -> int:
        """Replan one page of recurring fires, in key order. The mark survives a restart. Computing times holds no lock."""
        seen_version, _, after = (await self._database.value(SQL.meta, "replan_mark") or "").partition("\n")
        if is_superseded(version, await self.zone_data()) or (
            seen_version != version and is_superseded(version, seen_version)
        ):
            return 0
        key = after if after and seen_version == version else FIRST_KEY
        rows = await self._database.fetch(SQL.zoned_fires, key, limit)
        changed = list(new_times((row["job_and_fire"] for row in rows), now_ms))
        async with self._database.transaction() as session:
            if changed:
                await self._replan(session, changed, now_ms)
            if len(rows) < limit:
                await session.execute(SQL.set_meta, "zone_data", version)
            else:
                await session.execute(SQL.set_meta, "replan_mark", f"{version}\n{rows[-1]['key']}")
        return len(rows)

    async def _replan(self, session: Session, changed: Sequence[NewTimes], now_ms: int) -> None:
        """Write new times. A fire that was advanced or edited since it was read is left alone, because it was planned then."""
        keys = [new.job.id for new in changed]
        numbers, nominals = [new.job.revision for new in changed], [new.fire.nominal_ms for new in changed]
        unchanged = {row["key"] for row in await session.fetch(SQL.lock_fires, keys, numbers, nominals)}
        executions = [execution for new in changed for execution in new.executions]
        fired = {row["id"] for row in await session.fetch(SQL.existing, executions)}
        writes = WriteSet(Inputs(), now_ms)
        for new in changed:
            if new.job.id in unchanged:
                replan(writes, new, fired)
        await session.fetchval(SQL.write_rows, as_json(payload_of(writes)), now_ms)

    async def _read_pool_defaults(self) -> None:
        self._pool_defaults = {row["name"]: row for row in await self._database.fetch(SQL.pool_defaults)}

    def _with_pool_defaults(self, dispatch: Dispatch) -> Dispatch:
        return dispatch.with_pool_defaults(self._pool_defaults.get(dispatch.pool))
