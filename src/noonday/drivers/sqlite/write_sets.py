"""Read the inputs of decisions and write their write sets in SQLite."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from noonday.drivers.sql import named_rows
from noonday.drivers.sql.named_sql import load
from noonday.model.execution import Execution, State
from noonday.model.firing import Fire
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.recording import SettleResult
from noonday.model.slots import SlotKey, capped_by, slot_key
from noonday.model.stored import StoredDecoder
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.rows import SlotChange
from noonday.transitions.settling import Settlement
from noonday.transitions.write_set import WriteSet, as_json, transition

SQL = load("noonday.drivers.sqlite", "write_sets")
S = TypeVar("S", bound=msgspec.Struct)
_executions = msgspec.json.Decoder(list[Execution])
_policy_sources = StoredDecoder(RetryPolicySources)
_jobs = StoredDecoder(list[Job])

_SIZES = (500, 50, 5, 1)
"""Numbers of rows of one INSERT statement."""


def insert_many(conn: sqlite3.Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Run an INSERT ... VALUES (...) for many rows in few statements. Returns how many rows were inserted.

    The number of rows of a statement is one of `_SIZES`, so that each statement is prepared once. For wide rows this is cheaper
    than JSON, where each column is looked up anew.
    """
    done = inserted = 0
    for size in _SIZES:
        while len(rows) - done >= size:
            values = [value for row in rows[done : done + size] for value in row]
            inserted += conn.execute(_with_rows(query, size), values).rowcount
            done += size
    return inserted


@cache
def _with_rows(query: str, count: int) -> str:
    head, values = query.split("VALUES ")
    row = re.sub(r"\?\d+", "?", values)
    return f"{head}VALUES {', '.join([row] * count)}"


def jobs_as_json(jobs: Iterable[tuple[str, str]]) -> str:
    """Return jobs, which are given as (tenant, job), as rows that a statement reads by name."""
    return as_json([{"tenant": tenant, "id": job} for tenant, job in jobs])


def keys_as_json(keys: Iterable[tuple[str, str]]) -> str:
    """Return slots or ordering keys, which are given as (tenant, key), as sorted rows that a statement reads by name."""
    return as_json([{"tenant": tenant, "key": key} for tenant, key in sorted(keys)])


def answer_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> str:
    """Return the one JSON value that a query returns."""
    text: str = conn.execute(query, parameters).fetchone()[0]
    return text


def rows_by_name(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[dict[str, Any]]:
    """Return the rows of a query, by the names of their columns."""
    cursor = conn.execute(query, parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def structs_of(kind: type[S], cursor: sqlite3.Cursor) -> list[S]:
    """Make a struct of each row by the names of its columns."""
    return named_rows.structs_of(kind, [column[0] for column in cursor.description], cursor.fetchall())


def fetch_structs(conn: sqlite3.Connection, kind: type[S], query: str, *parameters: Any) -> list[S]:
    """Return many rows as structs by the names of their columns, through one JSON value.

    Fetching row by row would wait for the interpreter lock at every row while another thread works. The columns are the first
    fields of the struct, in their order, with at most one gap.
    """
    columns = _columns_of(conn, query, parameters)
    return _decoder(kind, columns).decode(answer_of(conn, _as_one_value(kind, query, columns), *parameters))


_columns: dict[str, tuple[str, ...]] = {}
"""The names of the columns of a query, found at its first use."""


def _columns_of(conn: sqlite3.Connection, query: str, parameters: Sequence[Any]) -> tuple[str, ...]:
    if query not in _columns:
        description = conn.execute(f"SELECT * FROM ({query}) LIMIT 0", parameters).description
        _columns[query] = tuple(column[0] for column in description)
    return _columns[query]


@cache
def _as_one_value(kind: type[S], query: str, columns: tuple[str, ...]) -> str:
    head, gap = named_rows.gap_in(kind, columns)
    values = [*columns[:head], *(f"json('{as_json(default)}')" for default in gap), *columns[head:]]
    return f"SELECT json_group_array(json_array({', '.join(values)})) FROM ({query})"


@cache
def _decoder(kind: type[S], columns: tuple[str, ...]) -> msgspec.json.Decoder[list[S]]:
    if columns != kind.__struct_fields__[: len(columns)] and not named_rows.gap_in(kind, columns)[1]:
        raise TypeError(f"the columns {', '.join(columns)} are not the first fields of {kind.__name__}")
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def executions_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[Execution]:
    return _executions.decode(answer_of(conn, query, *parameters))


def settle(conn: sqlite3.Connection, settlement: Settlement, now_ms: int) -> SettleResult:
    """Read the inputs of a settlement, settle, and write."""
    writes, settled = settlement.settle(_inputs_for(conn, settlement), now_ms)
    write(conn, writes)
    return settled


def _inputs_for(conn: sqlite3.Connection, settlement: Settlement) -> Inputs:
    failed, revoked_jobs = as_json(settlement.failed), jobs_as_json(settlement.revoked_jobs)
    sources = rows_by_name(conn, SQL.policies, failed) if settlement.failed else []
    has_revoked, deciding_jobs = bool(settlement.revoked_jobs), settlement.deciding_jobs
    paused = rows_by_name(conn, SQL.paused, jobs_as_json(deciding_jobs)) if deciding_jobs else []
    return Inputs(
        open_=turns_of(conn, settlement.open_to_read),
        policies={row["execution_id"]: _policy_sources.decode(row["sources"]).policy for row in sources},
        jobs=_jobs.decode(answer_of(conn, SQL.jobs, revoked_jobs)) if has_revoked else [],
        fires=_fires_of(conn, revoked_jobs) if has_revoked else None,
        paused=[JobId(row["id"]) for row in paused],
    )


def _fires_of(conn: sqlite3.Connection, jobs: str) -> dict[JobId, Fire]:
    rows = rows_by_name(conn, SQL.fires_of_jobs, jobs)
    return {JobId(row["key"]): Fire(row["nominal_ms"], row["due_ms"], row["runs_left"]) for row in rows}


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
    return {
        JobId(row["id"]): Limit(row["overlap"], row["key"], row["limit"], bool(row["ordered"]))
        for row in rows_by_name(conn, SQL.limits_of_jobs, jobs_as_json(sorted(jobs)))
    }


def heads_of(conn: sqlite3.Connection, ordering_keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the key of the first fire of each ordering key."""
    rows = rows_by_name(conn, SQL.heads, keys_as_json(ordering_keys))
    return {(row["tenant"], row["ordering_key"]): row["head"] for row in rows}


def slots_used(conn: sqlite3.Connection, slots: Iterable[SlotKey]) -> dict[SlotKey, int]:
    rows = rows_by_name(conn, SQL.slots, keys_as_json(slots))
    return {(row["tenant"], row["key"]): row["used"] for row in rows}


def caps_of(
    conn: sqlite3.Connection, named: Iterable[tuple[str, str]]
) -> tuple[dict[SlotKey, int], dict[SlotKey, int]]:
    """Return the use and the caps of the slots that executions count against, by (tenant, pool)."""
    keys = {key for tenant, pool in named for key in capped_by(tenant, pool)}
    rows = {(row["tenant"], row["key"]): row for row in rows_by_name(conn, SQL.caps, keys_as_json(keys))}
    return {key: row["used"] for key, row in rows.items()}, {key: row["cap"] for key, row in rows.items()}


def write(conn: sqlite3.Connection, writes: WriteSet) -> int:
    """Write a write set. Returns how many executions are new."""
    created = 0
    now_ms = writes.now_ms
    if writes.new:
        if writes.slots:
            _count_once(conn, writes)
        created = _run(conn, SQL.add_executions, list(writes.new.values()), now_ms, transition(State.PENDING, now_ms))
    if writes.redispatched:
        _run(conn, SQL.mark_dispatched, writes.redispatched, now_ms)
    if writes.settled:
        _run(conn, SQL.set_executions, writes.settled)
    if writes.revoked:
        _run(conn, SQL.revoke, writes.revoked)
    if writes.returned_runs:
        _run(conn, SQL.return_runs, writes.returned_runs)
    if writes.dropped:
        _run(conn, SQL.drop_timeline, writes.dropped)
    if writes.timeline:
        _run(conn, SQL.put_timeline, list(writes.timeline.values()))
    if writes.decisions:
        _run(conn, SQL.add_decisions, writes.decisions, now_ms)
    if writes.dead_letters:
        _run(conn, SQL.add_dead, writes.dead_letters, now_ms)
    if writes.incidents:
        _run(conn, SQL.add_incidents, writes.incidents, now_ms)
    if writes.children:
        _run(conn, SQL.add_children, writes.children)
    if writes.slots:
        change_slots(conn, writes.slots)
    return created


def _count_once(conn: sqlite3.Connection, writes: WriteSet) -> None:
    """Do not count slots of executions that exist already, because they are counted."""
    existing = {row["id"] for row in rows_by_name(conn, SQL.existing, as_json(list(writes.new)))}
    for new in writes.new.values():
        if new.id in existing:
            writes.slots.subtract(slot_key(new.tenant, name) for name in new.slots or ())


def change_slots(conn: sqlite3.Connection, slots: Mapping[SlotKey, int]) -> None:
    _run(conn, SQL.change_slots, [SlotChange(tenant, key, more) for (tenant, key), more in slots.items()])
    if any(more < 0 for more in slots.values()):
        conn.execute(SQL.drop_free_slots)


def release_slots(conn: sqlite3.Connection, ended: Sequence[ExecutionId]) -> tuple[str, ...]:
    """Free the slots of executions that have just ended. Returns the names of the slots."""
    freed: Counter[SlotKey] = Counter()
    for row in rows_by_name(conn, SQL.slots_of, as_json(ended)):
        for name in msgspec.json.decode(row["slots"]):
            freed[slot_key(row["tenant"], name)] -= row["count"]
    if freed:
        change_slots(conn, freed)
    return tuple(name for _, name in freed)


def _run(conn: sqlite3.Connection, query: str, rows: Sequence[Any], *parameters: Any) -> int:
    return conn.execute(query, (as_json(rows), *parameters)).rowcount
