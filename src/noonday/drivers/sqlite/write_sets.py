"""Read the inputs of decisions and write their write sets in SQLite."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.model.execution import Execution, State
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.recording import Settled
from noonday.model.slots import SlotKey, capped_by, slot_key
from noonday.model.stored import StoredDecoder
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.settling import Settlement
from noonday.transitions.write_set import WriteSet, as_json, transition

SQL = load("noonday.drivers.sqlite", "write_sets")
_executions = msgspec.json.Decoder(list[Execution])
_rows = msgspec.json.Decoder(list[list[Any]])
_policy_sources = StoredDecoder(list[tuple[ExecutionId, RetryPolicySources]])
_limits = msgspec.json.Decoder(list[tuple[JobId, Limit]])
_jobs = StoredDecoder(list[Job])
_fires = msgspec.json.Decoder(list[tuple[JobId, Fire]])

_SIZES = (500, 50, 5, 1)
"""Numbers of rows of one INSERT statement."""


def insert_many(conn: sqlite3.Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run an INSERT ... VALUES (?, ...) for many rows in few statements.

    The number of rows of a statement is one of `_SIZES`, so that each statement is prepared once. For wide rows this is cheaper
    than JSON, where each column is looked up anew.
    """
    done = 0
    for size in _SIZES:
        while len(rows) - done >= size:
            conn.execute(_with_rows(query, size), [value for row in rows[done : done + size] for value in row])
            done += size


@cache
def _with_rows(query: str, count: int) -> str:
    head, values = query.split("VALUES ")
    return f"{head}VALUES {', '.join([values] * count)}"


def answer_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> str:
    """Return the one JSON value that a query returns."""
    text: str = conn.execute(query, parameters).fetchone()[0]
    return text


def rows_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[list[Any]]:
    return _rows.decode(answer_of(conn, query, *parameters))


def executions_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[Execution]:
    return _executions.decode(answer_of(conn, query, *parameters))


def settle(conn: sqlite3.Connection, settlement: Settlement, now_ms: int) -> Settled:
    """Read the inputs of a settlement, settle, and write."""
    writes, settled = settlement.settle(_inputs_for(conn, settlement), now_ms)
    write(conn, writes)
    return settled


def _inputs_for(conn: sqlite3.Connection, settlement: Settlement) -> Inputs:
    failed, revoked_jobs = settlement.failed, settlement.revoked_jobs
    sources = _policy_sources.decode(answer_of(conn, SQL.policies, as_json(failed))) if failed else []
    jobs = _jobs.decode(answer_of(conn, SQL.jobs, as_json(revoked_jobs))) if revoked_jobs else []
    deciding_jobs = settlement.deciding_jobs
    paused = rows_of(conn, SQL.paused, as_json(deciding_jobs)) if deciding_jobs else []
    return Inputs(
        open_=turns_of(conn, settlement.open_to_read),
        policies={execution: each.policy for execution, each in sources},
        jobs=jobs,
        fires=dict(_fires.decode(answer_of(conn, SQL.fires_of_jobs, as_json(revoked_jobs)))) if revoked_jobs else None,
        paused=[JobId(job) for (job,) in paused],
    )


def turns_of(conn: sqlite3.Connection, jobs: Mapping[JobId, int]) -> list[Execution]:
    """Return the first open executions of some jobs, up to the given number of each, and the first buffered one."""
    return [
        execution
        for most in sorted(set(jobs.values()))
        for execution in executions_of(
            conn, SQL.turns_of_jobs, as_json(sorted(job for job, count in jobs.items() if count == most)), most
        )
    ]


def limits_of(conn: sqlite3.Connection, jobs: Iterable[tuple[str, str]]) -> dict[JobId, Limit]:
    """Return the overlap policies and concurrency limits of jobs, which are given as (tenant, job)."""
    return dict(_limits.decode(answer_of(conn, SQL.limits_of_jobs, as_json(sorted(jobs)))))


def heads_of(conn: sqlite3.Connection, ordering_keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the key of the first fire of each ordering key."""
    return {(tenant, name): key for tenant, name, key in rows_of(conn, SQL.heads, as_json(sorted(ordering_keys)))}


def slots_used(conn: sqlite3.Connection, slots: Iterable[SlotKey]) -> dict[SlotKey, int]:
    return {(tenant, key): used for tenant, key, used in rows_of(conn, SQL.slots, as_json(sorted(slots)))}


def caps_of(
    conn: sqlite3.Connection, named: Iterable[tuple[str, str]]
) -> tuple[dict[SlotKey, int], dict[SlotKey, int]]:
    """Return the use and the caps of the slots that executions count against, by (tenant, pool)."""
    keys = sorted({key for tenant, pool in named for key in capped_by(tenant, pool)})
    rows = rows_of(conn, SQL.caps, as_json(keys))
    return {(t, name): used for t, name, used, _ in rows}, {(t, name): cap for t, name, _, cap in rows}


def write(conn: sqlite3.Connection, writes: WriteSet) -> int:
    """Write a write set. Returns how many executions are new."""
    created = 0
    now_ms = writes.now_ms
    if writes.new:
        if writes.slots:
            _count_once(conn, writes)
        created = _run(conn, SQL.add_executions, writes.new, now_ms, transition(State.PENDING, now_ms))
    if writes.redispatched:
        _run(conn, SQL.mark_dispatched, writes.redispatched, now_ms)
    if writes.settled:
        _run(conn, SQL.set_executions, writes.settled)
    if writes.revoked:
        _run(conn, SQL.revoke, writes.revoked)
    if writes.runs_returned:
        _run(conn, SQL.return_runs, list(writes.runs_returned.items()))
    if writes.dropped:
        _run(conn, SQL.drop_timeline, writes.dropped)
    if writes.put_rows:
        _run(conn, SQL.put_timeline, writes.put_rows)
    if writes.decisions:
        _run(conn, SQL.add_decisions, writes.decisions, now_ms)
    if writes.dead_letters:
        _run(conn, SQL.add_dead, writes.dead_letters, now_ms)
    if writes.incidents:
        _run(conn, SQL.add_incidents, writes.incidents, now_ms)
    if writes.slots:
        change_slots(conn, writes.slots)
    return created


def _count_once(conn: sqlite3.Connection, writes: WriteSet) -> None:
    """Do not count slots of executions that exist already, because they are counted."""
    existing = {row[0] for row in rows_of(conn, SQL.existing, as_json([new[0] for new in writes.new]))}
    for execution, tenant, *_, slots in writes.new:
        if execution in existing:
            writes.slots.subtract(slot_key(tenant, name) for name in slots or ())


def change_slots(conn: sqlite3.Connection, slots: Mapping[SlotKey, int]) -> None:
    _run(conn, SQL.change_slots, [(*key, more) for key, more in slots.items()])
    if any(more < 0 for more in slots.values()):
        conn.execute(SQL.drop_free_slots)


def release_slots(conn: sqlite3.Connection, ended: Sequence[ExecutionId]) -> tuple[str, ...]:
    """Free the slots of executions that have just ended. Returns the names of the slots."""
    freed: Counter[SlotKey] = Counter()
    for tenant, names, count in rows_of(conn, SQL.slots_of, as_json(ended)):
        for name in names:
            freed[slot_key(tenant, name)] -= count
    if freed:
        change_slots(conn, freed)
    return tuple(name for _, name in freed)


def _run(conn: sqlite3.Connection, query: str, rows: Sequence[Any], *parameters: Any) -> int:
    return conn.execute(query, (as_json(rows), *parameters)).rowcount
