"""Encode write sets for the store's functions, and read the inputs of decisions, in PostgreSQL."""

import json
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.sql.named_sql import load
from noonday.model.errors import StoreUnavailable
from noonday.model.execution import Execution
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.recording import Settled
from noonday.model.slots import SlotKey
from noonday.model.stored import StoredDecoder
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.settling import Settlement
from noonday.transitions.write_set import WriteSet, as_json

SQL = load("noonday.drivers.postgres", "write_sets")
T = TypeVar("T")
STALE_CHECKPOINT, CHANGED, NOT_SIMPLE, NOT_CURRENT, SLOTS_LOCKED = "ND001", "ND002", "ND003", "ND004", "ND005"
"""SQLSTATEs of refusals: another recorder moved the checkpoint; inputs changed; reports that are not simple successes; entries
that are stale or locked; slots that are locked."""
TRIES = 8
"""How often a decision is made before its write conflicts count as an outage."""

Versioned = tuple[Execution, str]
"""An execution as it was read, and the version of its row."""
_versioned = msgspec.json.Decoder(list[Versioned])
Touched = tuple[str, JobId, int, bool]
"""(tenant, job, change counter, whether the job is paused)."""
_inputs = StoredDecoder(
    tuple[
        list[Touched],
        list[Execution],
        list[tuple[ExecutionId, RetryPolicySources]],
        list[Job],
        list[tuple[JobId, Fire]],
    ]
)


def payload_of(writes: WriteSet, limits: dict[SlotKey, int] | None = None) -> dict[str, Any]:
    """Return a write set in the form that `write_rows` takes. `limits` has the limits of the concurrency keys that it uses."""
    sets: dict[str, Any] = {
        "new": writes.new,
        "again": writes.redispatched,
        "set": writes.settled,
        "wish": writes.revoked,
        "runs": list(writes.runs_returned.items()),
        "drop": writes.dropped,
        "put": writes.put_rows,
        "decisions": writes.decisions,
        "dead": writes.dead_letters,
        "incidents": writes.incidents,
        "slots": [
            (tenant, key, more, (limits or {}).get((tenant, key))) for (tenant, key), more in writes.slots.items()
        ],
        "touched": list(writes.touched),
    }
    return {name: rows for name, rows in sets.items() if rows}


def versioned(text: str) -> list[Versioned]:
    return _versioned.decode(text)


async def inputs_for(database: PostgresDatabase, settlement: Settlement) -> tuple[Inputs, list[Touched]]:
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
    touched, open_, sources, jobs, fires = _inputs.decode(text)
    policies = {execution: each.policy for execution, each in sources}
    return Inputs(open_=open_, policies=policies, jobs=jobs, fires=dict(fires), paused=paused_of(touched)), touched


def paused_of(touched: Iterable[Touched]) -> list[JobId]:
    return [job for _, job, _, is_paused in touched if is_paused]


async def settle_found(
    database: PostgresDatabase,
    read: Callable[[], Coroutine[Any, Any, Sequence[Versioned]]],
    decide: Callable[[Sequence[Execution]], Settlement],
    now_ms: int,
) -> Settled:
    """Settle executions without a report: read them, decide, and write if they are unchanged."""

    async def attempt() -> Settled:
        rows = await read()
        settlement = decide([row for row, _ in rows])
        inputs, touched = await inputs_for(database, settlement)
        writes, settled = settlement.settle(inputs, now_ms)
        if settlement.cases:
            checks = {"rows": [(row.id, version) for row, version in rows], "jobs": touched}
            await database.value(SQL.apply, as_json(payload_of(writes) | checks), now_ms)
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
