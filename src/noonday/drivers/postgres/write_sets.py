"""A write set as the one value that the store's functions write, and the inputs of decisions."""

import json
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec

from noonday.drivers.postgres.connection import Database
from noonday.drivers.postgres.queries import load
from noonday.model.errors import StoreUnavailable
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.slots import SlotKey
from noonday.model.stored import StoredDecoder
from noonday.ports.executions import Settled
from noonday.ports.jobs import Execution, Fire
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.settling import Settlement
from noonday.transitions.write_set import WriteSet, as_json

SQL = load("write_sets")
T = TypeVar("T")
STALE_PLACE, CHANGED, NOT_PLAIN, NOT_SOUND, SLOTS_LOCKED = "ND001", "ND002", "ND003", "ND004", "ND005"
TRIES = 8

Versioned = tuple[Execution, str]
"""An execution as it was read, and the version of its row."""
_versioned = msgspec.json.Decoder(list[Versioned])
Touched = tuple[str, JobId, int, bool]
"""(tenant, job, how often it was touched, whether it is paused)."""
_books = StoredDecoder(
    tuple[
        list[Touched],
        list[Execution],
        list[tuple[ExecutionId, RetryPolicySources]],
        list[Job],
        list[tuple[JobId, Fire]],
    ]
)


def payload_of(writes: WriteSet, limits: dict[SlotKey, int] | None = None) -> dict[str, Any]:
    """What `write_rows` takes. `limits`: how many of each concurrency key there may be, for those that take more."""
    sets: dict[str, Any] = {
        "new": writes.new,
        "again": writes.handed_out_again,
        "set": writes.settled,
        "wish": writes.revoked,
        "runs": list(writes.runs_returned.items()),
        "drop": writes.dropped,
        "put": writes.put_rows,
        "decisions": writes.decisions,
        "dead": writes.buried,
        "incidents": writes.incidents,
        "slots": [
            (tenant, key, more, (limits or {}).get((tenant, key))) for (tenant, key), more in writes.slots.items()
        ],
        "touched": list(writes.touched),
    }
    return {name: rows for name, rows in sets.items() if rows}


def versioned(text: str) -> list[Versioned]:
    return _versioned.decode(text)


async def inputs_for(database: Database, settlement: Settlement) -> tuple[Inputs, list[Touched]]:
    """What a settlement looks at, and the jobs by which it decides, as they were touched."""
    failed, asked_back, decided_by = settlement.failed, settlement.asked_back, settlement.decided_by
    turns = settlement.turns
    if not (failed or decided_by):
        return Inputs(), []
    text = await database.value(
        SQL.inputs,
        failed,
        [tenant for tenant, _ in asked_back],
        [job for _, job in asked_back],
        [tenant for tenant, _ in decided_by],
        [job for _, job in decided_by],
        list(turns),
        list(turns.values()),
    )
    touched, open_, said, jobs, fires = _books.decode(text)
    policies = {execution: each.policy for execution, each in said}
    return Inputs(open_=open_, policies=policies, jobs=jobs, fires=dict(fires), paused=paused_of(touched)), touched


def paused_of(touched: Iterable[Touched]) -> list[JobId]:
    return [job for _, job, _, is_paused in touched if is_paused]


async def settle_found(
    database: Database,
    read: Callable[[], Coroutine[Any, Any, Sequence[Versioned]]],
    decide: Callable[[Sequence[Execution]], Settlement],
    now_ms: int,
) -> Settled:
    """Settle executions that nobody reports of: read them, decide, and write if they are unchanged."""

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
    """Decide again as long as what the decision was made by has changed before it could be written."""
    for _ in range(TRIES):
        try:
            return await attempt()
        except asyncpg.PostgresError as error:
            if error.sqlstate != CHANGED:
                raise
    raise StoreUnavailable("what is to be decided changes faster than it can be decided")


def ids_in(error: asyncpg.PostgresError) -> set[str]:
    """The ids that a function named in its refusal."""
    return set(json.loads(error.detail or "[]"))


def slots_in(error: asyncpg.PostgresError) -> set[SlotKey]:
    """The slots that a function named in its refusal."""
    return {(tenant, name) for tenant, name in json.loads(error.detail or "[]")}


def limits_by_slot(limits: Iterable[tuple[str, Limit]]) -> dict[SlotKey, int]:
    """For each key the lowest limit that any of these jobs says."""
    found: dict[SlotKey, int] = {}
    for tenant, limit in limits:
        if limit.slot and limit.limit is not None:
            slot = (tenant, limit.slot)
            found[slot] = min(limit.limit, found.get(slot, limit.limit))
    return found
