"""Walk the timeline, fire entries and recover orphans in SQLite."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import (
    caps_of,
    change_slots,
    executions_of,
    fetch_structs,
    heads_of,
    insert_many,
    jobs_as_json,
    limits_of,
    rows_by_name,
    settle,
    slots_used,
    structs_of,
    turns_of,
    write,
)
from noonday.model.batch import Batch, FireRequest, FireResult, Mark, Owner, RecurringJob, Takeover
from noonday.model.execution import Outcome, State
from noonday.model.fence import NEVER_MS, ORPHANED_AFTER_MS
from noonday.model.firing import Entry, Kind
from noonday.model.ids import PARTITIONS, ExecutionId, InstanceId, JobId, TenantId, execution_id
from noonday.model.message import Dispatch
from noonday.model.pause import is_paused
from noonday.model.slots import SlotKey, capped_by
from noonday.ports.firing import Firing
from noonday.transitions.fire_batch import FireBatch, is_constrained, is_simple, open_to_read
from noonday.transitions.inputs import Inputs
from noonday.transitions.plans import read_plans
from noonday.transitions.replanning import is_superseded, new_times, replan
from noonday.transitions.settling import unreported
from noonday.transitions.write_set import WriteSet, as_json, transition

SQL = load("noonday.drivers.sqlite", "firing")


class SqliteFiring(Firing):
    def __init__(self, database: SqliteDatabase, lead_ms: int) -> None:
        self._database = database
        self._lead_ms = lead_ms

    async def take_over(self, instance: InstanceId, partitions: Collection[int]) -> Mapping[int, Takeover]:
        def work(conn: sqlite3.Connection) -> Mapping[int, Takeover]:
            named = as_json(list(partitions))
            former = {row["partition"]: row["owner"] for row in rows_by_name(conn, SQL.owners, named)}
            conn.execute(SQL.take_over, (instance, named))
            epochs = _epochs(conn)
            return {partition: Takeover(epochs[partition], former[partition]) for partition in partitions}

        return await self._database.write(work)

    async def walk(self, partitions: Collection[int], after: Mark | None, until_ms: int, limit: int) -> list[Entry]:
        due_ms, key = after or (-(2**62), "")
        bounds = (due_ms, key, until_ms, limit)

        def work(conn: sqlite3.Connection) -> list[Entry]:
            if len(partitions) == PARTITIONS:
                return fetch_structs(conn, Entry, SQL.walk_all, *bounds)
            named = as_json(list(partitions))
            return fetch_structs(conn, Entry, SQL.walk_partitions, *bounds, named)

        return await self._database.read(work)

    async def walk_tenant(
        self, tenant: TenantId, partitions: Collection[int], first: Mark, until_ms: int, limit: int
    ) -> list[Entry]:
        parameters = (*first, until_ms, limit, as_json(list(partitions)), tenant)
        return await self._database.read(lambda conn: fetch_structs(conn, Entry, SQL.walk_tenant, *parameters))

    async def plans(self, entries: Sequence[Entry]) -> dict[tuple[JobId, int], RecurringJob]:
        jobs = jobs_as_json((entry.tenant, entry.key) for entry in entries)
        text = await self._database.read(lambda conn: conn.execute(SQL.plans, (jobs,)).fetchone()[0])
        return read_plans(text)

    async def fire(self, owner: Owner, firings: Sequence[FireRequest], now_ms: int) -> FireResult:
        return await self._database.write(lambda conn: _Fire(conn, owner, now_ms, self._lead_ms).fire(firings))

    async def seal(self, batches: Sequence[int]) -> None:
        await self._database.write(lambda conn: conn.execute(SQL.seal, (as_json(list(batches)),)))

    async def unsealed(self, before_ms: int, limit: int, after: int = 0) -> list[Batch]:
        parameters = (before_ms, limit, after)
        return await self._database.read(lambda conn: structs_of(Batch, conn.execute(SQL.unsealed, parameters)))

    async def dispatches_of(self, batch: Batch) -> list[Dispatch]:
        def work(conn: sqlite3.Connection) -> list[Dispatch]:
            row = conn.execute(SQL.batch_members, (batch.id,)).fetchone()
            return list(_with_pool_defaults(conn, _dispatches_of(conn, row[0], batch.fired_ms))) if row else []

        return await self._database.read(work)

    async def requeue_orphans(
        self, fired_before_ms: int, limit: int, now_ms: int, *, ahead: bool = True
    ) -> list[Entry]:
        stamped_after_ms = now_ms + ORPHANED_AFTER_MS if ahead else NEVER_MS

        def work(conn: sqlite3.Connection) -> list[Entry]:
            orphans = executions_of(conn, SQL.orphans, fired_before_ms, limit, stamped_after_ms)
            return list(settle(conn, unreported(orphans, Outcome.ORPHANED), now_ms).entries)

        return await self._database.write(work)

    async def count_due(self, now_ms: int) -> dict[str, tuple[int, int]]:
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.count_due, now_ms))
        return {row["pool"]: (row["due"], row["oldest_ms"]) for row in rows}

    async def zone_data(self) -> str | None:
        return await self._database.read(_zone_data)

    async def replan_again(self, newest: str) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.set_replan_mark, (f"{newest}\n",))
            conn.execute(SQL.forget_zone_data)

        await self._database.write(work)

    async def replan(self, version: str, limit: int, now_ms: int) -> int:
        return await self._database.write(lambda conn: _replan(conn, version, limit, now_ms))


class _SimpleExecution(msgspec.Struct, frozen=True, gc=False):
    """The new execution of a simple one-shot."""

    execution_id: ExecutionId
    job_id: str
    tenant: str
    nominal_ms: int
    due_ms: int
    revision: int
    pool: str
    handler: str
    lane: int
    created_ms: int
    fired_ms: int
    slots: str | None
    transitions: str


class _Fire:
    """Fires one batch: separates stale entries from those that may fire, and writes what was decided."""

    def __init__(self, conn: sqlite3.Connection, owner: Owner, now_ms: int, lead_ms: int) -> None:
        self.conn = conn
        self.owner = owner
        self.now_ms = now_ms
        self.latest_due_ms = now_ms + lead_ms
        self.present: list[Entry] = []
        """Current rows of entries that were not fired: changed, not due yet, paused, or over a cap."""
        self.refused = 0
        self.paused = 0
        self.dispatches: list[Dispatch] = []
        self.members: dict[ExecutionId, int] = {}
        """The due times of the executions that were fired as simple ones."""
        self.fired_simple: list[str] = []
        self.used: dict[SlotKey, int] = {}
        self.caps: dict[SlotKey, int] = {}
        self._keys: dict[tuple[str, str], list[SlotKey]] = {}

    def fire(self, requests: Sequence[FireRequest]) -> FireResult:
        epochs = _epochs(self.conn)
        lost = {p for p in {request.entry.partition for request in requests} if epochs[p] != self.owner.epochs.get(p)}
        owned = requests if not lost else [request for request in requests if request.entry.partition not in lost]
        owned = self._drop_paused(owned)
        self.used, self.caps = caps_of(self.conn, {(request.entry.tenant, request.entry.pool) for request in owned})
        valid = self._drop_stale(self._fire_simple(owned))
        fire_batch = self._batch_for([request for request in valid if is_constrained(request)])
        fire_batch.fire(valid)
        fire_batch.writes.drop(self.fired_simple)
        write(self.conn, fire_batch.writes)
        return self._result(fire_batch, tuple(sorted(lost)))

    def _drop_paused(self, requests: Sequence[FireRequest]) -> Sequence[FireRequest]:
        pauses = {(row["kind"], row["name"]) for row in rows_by_name(self.conn, SQL.pauses)}
        if not pauses:
            return requests
        paused = [request for request in requests if is_paused(pauses, request.entry.tenant, request.entry.pool)]
        before = len(self.present)
        self.present += [request.entry for request in self._drop_stale(paused)]
        self.paused = len(self.present) - before
        return [request for request in requests if not is_paused(pauses, request.entry.tenant, request.entry.pool)]

    def _fire_simple(self, requests: Sequence[FireRequest]) -> Sequence[FireRequest]:
        """Fire simple one-shots up to their caps, if none of them is stale or fired. Returns the remaining requests."""
        simple = [request.entry for request in requests if is_simple(request)]
        if not simple:
            return requests
        chosen, over_cap, taken = self._within_caps(simple)
        dispatches = self._read_simple(chosen)
        if dispatches is None or not self._add_simple(chosen, dispatches):
            return requests
        if taken:
            change_slots(self.conn, taken)
            self.used = {key: used + taken[key] for key, used in self.used.items()}
        self.dispatches = dispatches
        self.members = {dispatch.execution_id: dispatch.due_ms for dispatch in dispatches}
        self.fired_simple = [entry.key for entry in chosen]
        self.present += over_cap
        return [request for request in requests if not is_simple(request)]

    def _read_simple(self, entries: Sequence[Entry]) -> list[Dispatch] | None:
        """Return the dispatches of simple one-shots. Returns None if one of them is stale or not due."""
        ids = as_json({entry.key: execution_id(JobId(entry.key), entry.nominal_ms) for entry in entries})
        dispatches = fetch_structs(self.conn, Dispatch, SQL.simple_dispatches, ids, self.now_ms, self.latest_due_ms)
        if len(dispatches) < len(entries):
            return None
        for dispatch, entry in zip(dispatches, entries, strict=True):
            if dispatch.revision != entry.number or dispatch.nominal_ms != entry.nominal_ms:
                return None
        return dispatches

    def _add_simple(self, entries: Sequence[Entry], dispatches: Sequence[Dispatch]) -> bool:
        """Insert the executions of simple one-shots. Returns False, and inserts none, if one of them exists."""
        transitions = transition(State.PENDING, self.now_ms)
        rows = [
            _SimpleExecution(
                execution_id=dispatch.execution_id,
                job_id=dispatch.job_id,
                tenant=dispatch.tenant,
                nominal_ms=dispatch.nominal_ms,
                due_ms=dispatch.due_ms,
                revision=dispatch.revision,
                pool=dispatch.pool,
                handler=dispatch.handler,
                lane=dispatch.lane,
                created_ms=self.now_ms,
                fired_ms=self.now_ms,
                slots=self._slot_names(entry),
                transitions=transitions,
            )
            for dispatch, entry in zip(dispatches, entries, strict=True)
        ]
        self.conn.execute("SAVEPOINT simple")
        values = [SQL.values(SQL.add_simple, row) for row in rows]
        is_new = insert_many(self.conn, SQL.add_simple, values) == len(rows)
        if not is_new:
            self.conn.execute("ROLLBACK TO simple")
        self.conn.execute("RELEASE simple")
        return is_new

    def _within_caps(self, entries: list[Entry]) -> tuple[list[Entry], list[Entry], Counter[SlotKey]]:
        """Split entries into those that fit under the caps and those that do not. Also returns how many slots are taken."""
        taken: Counter[SlotKey] = Counter()
        if not self.caps:
            return entries, [], taken
        chosen, over_cap = [], []
        for entry in entries:
            keys = self._capped_slots(entry.tenant, entry.pool)
            if all(self.used[key] + taken[key] < self.caps[key] for key in keys):
                for key in keys:
                    taken[key] += 1
                chosen.append(entry)
            else:
                over_cap.append(entry)
        return chosen, over_cap, taken

    def _slot_names(self, entry: Entry) -> str | None:
        names = [name for _, name in self._capped_slots(entry.tenant, entry.pool)] if self.caps else []
        return as_json(names) if names else None

    def _capped_slots(self, tenant: str, pool: str) -> list[SlotKey]:
        """Return the capped slots that a tenant's executions in a pool count against."""
        keys = self._keys.get((tenant, pool))
        if keys is None:
            keys = self._keys[tenant, pool] = [key for key in capped_by(tenant, pool) if key in self.caps]
        return keys

    def _drop_stale(self, requests: Sequence[FireRequest]) -> list[FireRequest]:
        """Return the requests whose entries match their current timeline rows and are due. Counts stale ones as refused."""
        rows = rows_by_name(self.conn, SQL.present, as_json([request.entry.key for request in requests]))
        present = {row["key"]: row for row in rows}
        valid = []
        for request in requests:
            entry, row = request.entry, present.get(request.entry.key)
            if row is None or row["due_ms"] is None:
                self.refused += 1
            elif _is_stale(request, row):
                self.refused += 1
                self.present.append(_entry_of(row))
            elif row["due_ms"] > self.latest_due_ms or (
                request.plan is not None and row["runs_left"] != request.runs_left
            ):
                # Not due yet, or planned with a number of remaining runs that has changed.
                self.present.append(_entry_of(row))
            else:
                valid.append(request)
                del present[entry.key]
        return valid

    def _batch_for(self, constrained: Sequence[FireRequest]) -> FireBatch:
        if not constrained:
            return FireBatch(Inputs(used=self.used, caps=self.caps), {}, self.now_ms)
        fires = {(s.entry.tenant, JobId(s.entry.key)) for s in constrained if s.entry.kind == Kind.FIRE}
        redispatched = [s.entry.key for s in constrained if s.entry.kind == Kind.DISPATCH]
        rows = rows_by_name(self.conn, SQL.jobs_of_executions, as_json(redispatched))
        job_of = {row["id"]: (row["tenant"], JobId(row["job_id"])) for row in rows}
        jobs = fires | set(job_of.values())
        limits = limits_of(self.conn, jobs)
        slots = {(tenant, name) for tenant, job in jobs if job in limits and (name := limits[job].slot)}
        ordering_keys = {(tenant, key) for tenant, job in jobs if job in limits and (key := limits[job].ordering_key)}
        inputs = Inputs(
            open_=turns_of(self.conn, open_to_read(limits, (job for _, job in fires))),
            used=self.used | slots_used(self.conn, slots) if slots else self.used,
            caps=self.caps,
            limits=limits,
            heads=heads_of(self.conn, ordering_keys) if ordering_keys else None,
            kept={row["id"]: tuple(msgspec.json.decode(row["kept"])) for row in rows},
        )
        return FireBatch(inputs, job_of, self.now_ms)

    def _result(self, fire_batch: FireBatch, lost: tuple[int, ...]) -> FireResult:
        batches: tuple[int, ...] = ()
        if fire_batch.members:
            self.dispatches += _dispatches_of(self.conn, as_json(fire_batch.members), self.now_ms)
        if self.dispatches:
            members = as_json(fire_batch.members | self.members)
            batch = self.conn.execute(SQL.add_batch, (self.owner.instance, self.now_ms, members)).lastrowid
            assert batch is not None
            batches = (batch,)
        return FireResult(
            batches=batches,
            dispatches=tuple(_with_pool_defaults(self.conn, self.dispatches)),
            entries=(*self.present, *fire_batch.writes.entries),
            revocations=tuple(fire_batch.writes.revocations),
            refused=self.refused,
            lost=lost,
            blocked=tuple(fire_batch.blocked),
            paused=self.paused,
            decided=dict(fire_batch.decided),
        )


def _with_pool_defaults(conn: sqlite3.Connection, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
    defaults = {row["name"]: row for row in rows_by_name(conn, SQL.pool_defaults)}
    return (
        [dispatch.with_pool_defaults(defaults.get(dispatch.pool)) for dispatch in dispatches]
        if defaults
        else dispatches
    )


def _epochs(conn: sqlite3.Connection) -> dict[int, int]:
    return dict(conn.execute(SQL.epochs).fetchall())


def _dispatches_of(conn: sqlite3.Connection, members: str, fired_ms: int) -> list[Dispatch]:
    return fetch_structs(conn, Dispatch, SQL.dispatches, members, fired_ms)


def _is_stale(request: FireRequest, row: Mapping[str, Any]) -> bool:
    entry = request.entry
    if row["number"] != entry.number or row["nominal_ms"] != entry.nominal_ms:
        return True
    return bool(entry.recurring) and request.plan is None


def _entry_of(row: Mapping[str, Any]) -> Entry:
    return Entry(**{name: row[name] for name in Entry.__struct_fields__})


def _zone_data(conn: sqlite3.Connection) -> str | None:
    row = conn.execute(SQL.zone_data).fetchone()
    return row[0] if row else None


def _replan(conn: sqlite3.Connection, version: str, limit: int, now_ms: int) -> int:
    """Replan one page of recurring fires, in key order. The mark survives a restart."""
    mark = conn.execute(SQL.replan_mark).fetchone()
    seen_version, _, after = mark[0].partition("\n") if mark else ("", "", "")
    if is_superseded(version, _zone_data(conn)) or (seen_version != version and is_superseded(version, seen_version)):
        return 0
    rows = rows_by_name(conn, SQL.zoned_fires, after if seen_version == version else "", limit)
    changed = list(new_times((row["job_and_fire"] for row in rows), now_ms))
    executions = [execution for new in changed for execution in new.executions]
    fired = {row["id"] for row in rows_by_name(conn, SQL.existing, as_json(executions))}
    writes = WriteSet(Inputs(), now_ms)
    for new in changed:
        replan(writes, new, fired)
    write(conn, writes)
    if len(rows) < limit:
        conn.execute(SQL.set_zone_data, (version,))
    else:
        conn.execute(SQL.set_replan_mark, (f"{version}\n{rows[-1]['key']}",))
    return len(rows)
