"""The fire of one batch in PostgreSQL: one statement for simple one-shots, and decisions that are repeated until they hold."""

from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.write_sets import (
    CHANGED,
    NOT_CURRENT,
    SLOTS_LOCKED,
    TRIES,
    JobVersion,
    ids_in,
    limits_by_slot,
    payload_of,
    slots_in,
    structs_of,
)
from noonday.drivers.sql.named_sql import load
from noonday.model.batch import FireRequest, FireResult, Owner
from noonday.model.errors import BadData, StoreUnavailable
from noonday.model.execution import Execution
from noonday.model.firing import Entry, Kind
from noonday.model.ids import PARTITIONS, ExecutionId, JobId, execution_id
from noonday.model.message import Dispatch
from noonday.model.pause import is_paused
from noonday.model.slots import SlotKey, capped_by
from noonday.transitions.fire_batch import FireBatch, is_constrained
from noonday.transitions.inputs import Inputs, Limit
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "firing")


class _Redispatched(msgspec.Struct, frozen=True):
    """An execution that is dispatched again, and the slots that it keeps."""

    id: str
    tenant: str
    job_id: JobId
    kept: tuple[str, ...]


class _ConstrainedJob(msgspec.Struct, frozen=True):
    version: JobVersion
    limit: Limit


class _Slot(msgspec.Struct, frozen=True):
    tenant: str
    key: str
    used: int


class _Head(msgspec.Struct, frozen=True):
    """The first fire of an ordering key."""

    tenant: str
    ordering_key: str
    key: str


class _ConstrainedInputs(msgspec.Struct, frozen=True):
    executions: list[_Redispatched]
    jobs: list[_ConstrainedJob]
    open: list[Execution]
    slots: list[_Slot]
    heads: list[_Head]


_constrained_inputs = msgspec.json.Decoder(_ConstrainedInputs)


class _Request(msgspec.Struct, frozen=True):
    """A request as `fire_decided` takes it."""

    key: str
    number: int
    nominal_ms: int
    job_id: JobId | None
    """The job of a constrained entry."""
    is_planned: bool
    runs_left: int | None


class _Member(msgspec.Struct, frozen=True):
    """An execution of a batch."""

    id: ExecutionId
    due_ms: int


def _request_of(fire_batch: FireBatch, request: FireRequest) -> _Request:
    entry = request.entry
    return _Request(
        key=entry.key,
        number=entry.number,
        nominal_ms=entry.nominal_ms,
        job_id=fire_batch.owner_of(entry)[1] if is_constrained(request) else None,
        is_planned=request.plan is not None,
        runs_left=request.runs_left,
    )


class BatchFire:
    """Fires one batch: simple one-shots in one statement; the rest is decided here and written in another."""

    def __init__(
        self, database: PostgresDatabase, owner: Owner, now_ms: int, given_ms: int | None, lead_ms: int
    ) -> None:
        """`given_ms` is the time to use instead of the server's clock."""
        self._database = database
        self._owner = owner
        self._now_ms = now_ms
        self._given_ms = given_ms
        self._lead_ms = lead_ms
        self._epochs = [owner.epochs.get(partition, -1) for partition in range(PARTITIONS)]
        self._batches: list[int] = []
        self._dispatches: list[Dispatch] = []
        self._fire_batch: FireBatch | None = None
        self._tried: FireBatch | None = None
        self._caps: dict[SlotKey, int] = {}
        self._used: dict[SlotKey, int] = {}
        self._paused = 0
        self._unavailable: list[Entry] = []
        """Entries that were not fired because the store failed."""
        self._not_fired: list[FireRequest] = []
        """Requests that were not fired: stale, not due yet, paused, locked, or of a partition that this instance does not own."""

    def first_of_each_key(self, requests: Sequence[FireRequest]) -> list[FireRequest]:
        """Return the first request of each key. For the others, only the row that the key has afterwards is returned."""
        first: dict[str, FireRequest] = {}
        for request in requests:
            first.setdefault(request.entry.key, request)
        if len(first) < len(requests):
            self._not_fired += [request for request in requests if first[request.entry.key] is not request]
        return list(first.values())

    async def read_caps(self, requests: Sequence[FireRequest]) -> None:
        """Read the use and the caps of the slots that requests count against. A cap set later applies to the next fire."""
        slots = sorted({key for each in {(s.entry.tenant, s.entry.pool) for s in requests} for key in capped_by(*each)})
        for row in await self._database.fetch(SQL.caps, [t for t, _ in slots], [n for _, n in slots]):
            key = (row["tenant"], row["key"])
            self._caps[key], self._used[key] = row["cap"], row["used"]

    async def fire_simple(self, requests: Sequence[FireRequest]) -> None:
        """Fire simple one-shots. The store chooses which of those that count against a cap may fire."""
        uncapped, capped = requests, []
        if self._caps:
            capped = [s for s in requests if any(key in self._caps for key in capped_by(s.entry.tenant, s.entry.pool))]
            keys = {request.entry.key for request in capped}
            uncapped = [request for request in requests if request.entry.key not in keys]
        await self._fire_simple(SQL.fire_simple, uncapped)
        await self.fire_or_return(partial(self._fire_simple, SQL.fire_capped), capped)

    async def fire_or_return(
        self, fire: Callable[[Sequence[FireRequest]], Coroutine[Any, Any, None]], requests: Sequence[FireRequest]
    ) -> None:
        """Fire more requests, or return their entries if the store fails after it has committed a batch.

        The committed batch is published at once. The returned entries are fired again later, without those of the batch.
        """
        try:
            await fire(requests)
        except (StoreUnavailable, BadData):
            if not self._batches:
                raise
            self._unavailable += [request.entry for request in requests]

    async def _fire_simple(self, statement: str, requests: Sequence[FireRequest]) -> None:
        if not requests:
            return
        entries = [request.entry for request in requests]
        keys = [entry.key for entry in entries]
        rows = await self._database.fetch(
            statement,
            self._owner.instance,
            self._epochs,
            self._given_ms,
            self._lead_ms,
            keys,
            [entry.number for entry in entries],
            [entry.nominal_ms for entry in entries],
            [execution_id(JobId(entry.key), entry.nominal_ms) for entry in entries],
        )
        if rows:
            self._batches.append(rows[0]["batch"])
            self._dispatches += structs_of(Dispatch, rows)
        if len(rows) < len(requests):
            fired = {dispatch.job_id for dispatch in self._dispatches}
            self._not_fired += [request for request in requests if request.entry.key not in fired]

    async def fire_decided(self, requests: Sequence[FireRequest]) -> None:
        """Decide requests and write. Requests that turn out to be stale are left out, and the rest is decided again."""
        stale = [request for request in requests if request.entry.recurring and request.plan is None]
        requests = [request for request in requests if not (request.entry.recurring and request.plan is None)]
        self._not_fired += stale
        for _ in range(TRIES):
            if not requests:
                return
            if self._caps:
                # One-shots or other transactions have taken slots since.
                await self.read_caps(requests)
            try:
                self._fire_batch = await self._fire_all(requests)
            except asyncpg.PostgresError as error:
                if error.sqlstate == NOT_CURRENT:
                    requests = self._leave_out(requests, ids_in(error))
                elif error.sqlstate == SLOTS_LOCKED:
                    assert self._tried is not None
                    requests = self._leave_out(requests, self._tried.keys_with(slots_in(error)))
                elif error.sqlstate != CHANGED:
                    raise
            else:
                return
        raise StoreUnavailable(f"gave up firing after {TRIES} write conflicts; retry")

    def _leave_out(self, requests: Sequence[FireRequest], keys: Collection[str]) -> list[FireRequest]:
        """Return the requests without those whose entries are stale or locked."""
        self._not_fired += [request for request in requests if request.entry.key in keys]
        return [request for request in requests if request.entry.key not in keys]

    async def _fire_all(self, requests: Sequence[FireRequest]) -> FireBatch:
        fire_batch, jobs, limits = await self._batch_for([request for request in requests if is_constrained(request)])
        self._tried = fire_batch
        fire_batch.fire(
            request for request in requests if not is_constrained(request) or fire_batch.has_read(request.entry)
        )
        self._not_fired += [
            request for request in requests if is_constrained(request) and not fire_batch.has_read(request.entry)
        ]
        if not fire_batch.fired:
            return fire_batch
        fired_jobs = {fire_batch.owner_of(request.entry) for request in fire_batch.fired if is_constrained(request)}
        writes = payload_of(fire_batch.writes, limits) | {
            "jobs": [job for job in jobs if (job.tenant, job.id) in fired_jobs],
            "requests": [_request_of(fire_batch, request) for request in fire_batch.fired],
        }
        if fire_batch.members:
            writes["members"] = [_Member(execution, due_ms) for execution, due_ms in fire_batch.members.items()]
        batch = await self._database.value(
            SQL.fire_decided, self._owner.instance, self._epochs, self._given_ms, self._lead_ms, as_json(writes)
        )
        if batch is not None:
            # A batch whose dispatches cannot be read stays unsealed, and the instance that adopts it publishes it.
            rows = await self._database.fetch(SQL.dispatches, batch)
            self._batches.append(batch)
            self._dispatches += structs_of(Dispatch, rows)
        return fire_batch

    async def _batch_for(
        self, constrained: Sequence[FireRequest]
    ) -> tuple[FireBatch, list[JobVersion], dict[SlotKey, int]]:
        if not constrained:
            return FireBatch(Inputs(used=dict(self._used), caps=self._caps), {}, self._now_ms), [], {}
        fires = [request.entry for request in constrained if request.entry.kind == Kind.FIRE]
        redispatched = [request.entry.key for request in constrained if request.entry.kind == Kind.DISPATCH]
        text = await self._database.value(
            SQL.constrained_inputs, [entry.tenant for entry in fires], [entry.key for entry in fires], redispatched
        )
        found = _constrained_inputs.decode(text)
        inputs = Inputs(
            open_=found.open,
            used=self._used | {(slot.tenant, slot.key): slot.used for slot in found.slots},
            caps=self._caps,
            limits={job.version.id: job.limit for job in found.jobs},
            heads={(head.tenant, head.ordering_key): head.key for head in found.heads},
            kept={each.id: each.kept for each in found.executions},
        )
        job_of = {each.id: (each.tenant, each.job_id) for each in found.executions}
        limits = limits_by_slot((job.version.tenant, job.limit) for job in found.jobs)
        return FireBatch(inputs, job_of, self._now_ms), [job.version for job in found.jobs], limits

    async def result(self) -> FireResult:
        refused, present, lost = await self._check_not_fired()
        fire_batch = self._fire_batch or FireBatch(Inputs(), {}, self._now_ms)
        return FireResult(
            batches=tuple(self._batches),
            dispatches=tuple(self._dispatches),
            entries=(*present, *self._unavailable, *fire_batch.writes.entries),
            revocations=tuple(fire_batch.writes.revocations),
            refused=refused,
            lost=tuple(sorted(lost)),
            blocked=tuple(fire_batch.blocked),
            paused=self._paused,
            decided=dict(fire_batch.decided),
        )

    async def _check_not_fired(self) -> tuple[int, list[Entry], set[int]]:
        """Return how many entries were stale, the current rows of the others, and which partitions this instance does not own."""
        if not self._not_fired:
            return 0, [], set()
        try:
            return await self._compare_not_fired()
        except StoreUnavailable:
            if not self._batches:
                raise
            return 0, [request.entry for request in self._not_fired], set()

    async def _compare_not_fired(self) -> tuple[int, list[Entry], set[int]]:
        epochs = {row["partition"]: row["epoch"] for row in await self._database.fetch(SQL.epochs)}
        lost = {
            p
            for p in {request.entry.partition for request in self._not_fired}
            if epochs[p] != self._owner.epochs.get(p)
        }
        left = [request for request in self._not_fired if request.entry.partition not in lost]
        rows = await self._database.fetch(SQL.present, [request.entry.key for request in left])
        by_key = {row["key"]: row for row in rows}
        refused, present = 0, []
        for request in left:
            entry, row = request.entry, by_key.pop(request.entry.key, None)
            if row is None or row["due_ms"] is None:
                refused += 1
                continue
            is_stale = row["number"] != entry.number or row["nominal_ms"] != entry.nominal_ms
            refused += is_stale or (bool(entry.recurring) and not request.plan)
            present += structs_of(Entry, [row])
        if present:
            pauses = {(row["kind"], row["name"]) for row in await self._database.fetch(SQL.pauses)}
            self._paused = sum(is_paused(pauses, entry.tenant, entry.pool) for entry in present)
        return refused, present, lost
