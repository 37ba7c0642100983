"""Encode write sets for the store's functions, and read the inputs of decisions, in PostgreSQL."""

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.sql import named_rows
from noonday.drivers.sql.named_sql import load
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Execution
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.recording import SettleResult
from noonday.model.slots import SlotKey
from noonday.model.stored import StoredDecoder
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.settling import Settlement
from noonday.transitions.write_set import WriteSet, as_json

SQL = load("noonday.drivers.postgres", "write_sets")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
STALE_CHECKPOINT, CHANGED, NOT_SIMPLE, NOT_CURRENT, SLOTS_LOCKED = "ND001", "ND002", "ND003", "ND004", "ND005"
"""SQLSTATEs of refusals: another recorder moved the checkpoint; inputs changed; reports that are not simple successes; entries
that are stale or locked; slots that are locked."""
TRIES = 8
"""Maximum number of tries of a decision. More write conflicts count as an outage."""


class Versioned(msgspec.Struct, frozen=True):
    """An execution as it was read, and the version of its row."""

    execution: Execution
    version: str


class JobVersion(msgspec.Struct, frozen=True):
    """A job from which something is decided: its change counter, and whether it is paused."""

    tenant: str
    id: JobId
    touched: int
    is_paused: bool = False


class _Policies(msgspec.Struct, frozen=True):
    execution_id: ExecutionId
    sources: RetryPolicySources


class _JobFire(msgspec.Struct, frozen=True):
    job_id: JobId
    fire: Fire


class _SettlementInputs(msgspec.Struct, frozen=True):
    jobs: list[JobVersion]
    open: list[Execution]
    policies: list[_Policies]
    definitions: list[Job]
    fires: list[_JobFire]


_versioned = msgspec.json.Decoder(list[Versioned])
_inputs = StoredDecoder(_SettlementInputs)


def payload_of(writes: WriteSet, limits: Mapping[SlotKey, int] | None = None) -> dict[str, Any]:
    """Return a write set as `write_rows` takes it. `limits` has the limits of the concurrency keys that it uses."""
    rows: dict[str, Any] = {
        "new_executions": list(writes.new.values()),
        "redispatched": writes.redispatched,
        "settled": writes.settled,
        "revoked": writes.revoked,
        "returned_runs": writes.returned_runs,
        "dropped": writes.dropped,
        "timeline": list(writes.timeline.values()),
        "decisions": writes.decisions,
        "dead_letters": writes.dead_letters,
        "incidents": writes.incidents,
        "children": writes.children,
        "slots": writes.slot_changes(limits or {}),
        "touched_jobs": writes.touched_jobs,
    }
    return {name: each for name, each in rows.items() if each}


def checks_of(rows: Iterable[Versioned], jobs: Sequence[JobVersion]) -> dict[str, Any]:
    """Return the rows that must be unchanged when a write set is written, as `check_unchanged` takes them."""
    return {"versions": [{"id": row.execution.id, "version": row.version} for row in rows], "jobs": jobs}


def structs_of(kind: type[S], rows: Sequence[asyncpg.Record]) -> list[S]:
    """Make a struct of each row by the names of its columns."""
    return named_rows.structs_of(kind, tuple(rows[0].keys()), rows) if rows else []


def columns_of(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> list[list[Any]]:
    """Return the columns of rows, as a statement with `unnest` takes them. `names` are the names of the columns."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


def versioned(text: str) -> list[Versioned]:
    return _versioned.decode(text)


async def inputs_for(database: PostgresDatabase, settlement: Settlement) -> tuple[Inputs, list[JobVersion]]:
    """Return the inputs of a settlement, and the deciding jobs with their change counters."""
    failed, revoked_jobs, deciding_jobs = settlement.failed, settlement.revoked_jobs, settlement.deciding_jobs
    turns = settlement.open_to_read
    if not (failed or deciding_jobs):
        return Inputs(), []
    text = await database.value(
        SQL.inputs,
        failed,
        [tenant for tenant, _ in revoked_jobs],
        [job for _, job in revoked_jobs],
        [tenant for tenant, _ in deciding_jobs],
        [job for _, job in deciding_jobs],
        list(turns),
        list(turns.values()),
    )
    found = _inputs.decode(text)
    inputs = Inputs(
        open_=found.open,
        policies={each.execution_id: each.sources.policy for each in found.policies},
        jobs=found.definitions,
        fires={each.job_id: each.fire for each in found.fires},
        paused=paused_of(found.jobs),
    )
    return inputs, found.jobs


def paused_of(jobs: Iterable[JobVersion]) -> list[JobId]:
    return [job.id for job in jobs if job.is_paused]


async def settle_found(
    database: PostgresDatabase,
    read: Callable[[], Coroutine[Any, Any, Sequence[Versioned]]],
    decide: Callable[[Sequence[Execution]], Settlement],
    now_ms: int,
) -> SettleResult:
    """Settle executions without a report: read them, decide, and write if they are unchanged."""

    async def attempt() -> SettleResult:
        rows = await read()
        settlement = decide([row.execution for row in rows])
        inputs, jobs = await inputs_for(database, settlement)
        writes, settled = settlement.settle(inputs, now_ms)
        if settlement.cases:
            await database.value(SQL.apply, as_json(payload_of(writes) | checks_of(rows, jobs)), now_ms)
        return settled

    return await until_unchanged(attempt)


async def until_unchanged(attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat a decision as long as its inputs change before it is written. Raises StoreUnavailable after TRIES attempts."""
    for _ in range(TRIES):
        try:
            return await attempt()
        except asyncpg.PostgresError as error:
            if error.sqlstate != CHANGED:
                raise
    raise StoreUnavailable(f"gave up after {TRIES} write conflicts; retry")


def ids_in(error: asyncpg.PostgresError) -> set[str]:
    """Return the ids that a function names in its refusal."""
    return set(json.loads(error.detail or "[]"))


def slots_in(error: asyncpg.PostgresError) -> set[SlotKey]:
    """Return the slots that a function names in its refusal."""
    return {(tenant, name) for tenant, name in json.loads(error.detail or "[]")}


def limits_by_slot(limits: Iterable[tuple[str, Limit]]) -> dict[SlotKey, int]:
    """Return the lowest limit of these jobs for each concurrency key."""
    found: dict[SlotKey, int] = {}
    for tenant, limit in limits:
        if limit.slot and limit.limit is not None:
            slot = (tenant, limit.slot)
            found[slot] = min(limit.limit, found.get(slot, limit.limit))
    return found
