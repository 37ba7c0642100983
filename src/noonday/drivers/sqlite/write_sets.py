"""Reads the inputs a decision needs, and writes what its write set has."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from noonday.drivers.sqlite.queries import load
from noonday.model.execution import State
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job
from noonday.model.slots import SlotKey, capped_by, slot_key
from noonday.model.stored import StoredDecoder
from noonday.ports.executions import Settled
from noonday.ports.jobs import Execution, Fire
from noonday.transitions.inputs import Inputs, Limit, RetryPolicySources
from noonday.transitions.settling import Settlement
from noonday.transitions.write_set import WriteSet, as_json, transition

SQL = load("write_sets")
_executions = msgspec.json.Decoder(list[Execution])
_rows = msgspec.json.Decoder(list[list[Any]])
_said = StoredDecoder(list[tuple[ExecutionId, RetryPolicySources]])
_limits = msgspec.json.Decoder(list[tuple[JobId, Limit]])
_jobs = StoredDecoder(list[Job])
_fires = msgspec.json.Decoder(list[tuple[JobId, Fire]])

_SIZES = (500, 50, 5, 1)


def insert_many(conn: sqlite3.Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run an INSERT ... VALUES (?, ...) for many rows in few statements, whose number of rows is one of a few, so that each
    is prepared once. Wide rows are cheaper this way than as JSON, of which each column would be looked up anew."""
    at = 0
    for size in _SIZES:
        while len(rows) - at >= size:
            conn.execute(_with_rows(query, size), [value for row in rows[at : at + size] for value in row])
            at += size


@cache
def _with_rows(query: str, count: int) -> str:
    head, values = query.split("VALUES ")
    return f"{head}VALUES {', '.join([values] * count)}"


def answer_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> str:
    """The one JSON value that a query answers."""
    text: str = conn.execute(query, parameters).fetchone()[0]
    return text


def rows_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[list[Any]]:
    return _rows.decode(answer_of(conn, query, *parameters))


def executions_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[Execution]:
    return _executions.decode(answer_of(conn, query, *parameters))


def settle(conn: sqlite3.Connection, settlement: Settlement, now_ms: int) -> Settled:
    """Read what the settlement looks at, settle, and write."""
    writes, settled = settlement.settle(_inputs_for(conn, settlement), now_ms)
    write(conn, writes)
    return settled


def _inputs_for(conn: sqlite3.Connection, settlement: Settlement) -> Inputs:
    failed, asked_back = settlement.failed, settlement.asked_back
    said = _said.decode(answer_of(conn, SQL.policies, as_json(failed))) if failed else []
    jobs = _jobs.decode(answer_of(conn, SQL.jobs, as_json(asked_back))) if asked_back else []
    decided_by = settlement.decided_by
    paused = rows_of(conn, SQL.paused, as_json(decided_by)) if decided_by else []
    return Inputs(
        open_=turns_of(conn, settlement.turns),
        policies={execution: each.policy for execution, each in said},
        jobs=jobs,
        fires=dict(_fires.decode(answer_of(conn, SQL.fires_of_jobs, as_json(asked_back)))) if asked_back else None,
        paused=[JobId(job) for (job,) in paused],
    )


def turns_of(conn: sqlite3.Connection, jobs: Mapping[JobId, int]) -> list[Execution]:
    """The first open executions of some jobs, so many of each, and the first buffered one."""
    return [
        execution
        for most in sorted(set(jobs.values()))
        for execution in executions_of(
            conn, SQL.turns_of_jobs, as_json(sorted(job for job, count in jobs.items() if count == most)), most
        )
    ]


def limits_of(conn: sqlite3.Connection, jobs: Iterable[tuple[str, str]]) -> dict[JobId, Limit]:
    """What watched jobs, named by (tenant, job), say about overlap and concurrency."""
    return dict(_limits.decode(answer_of(conn, SQL.limits_of_jobs, as_json(sorted(jobs)))))


def heads_of(conn: sqlite3.Connection, ordering_keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the key of the first fire of each ordering key."""
    return {(tenant, name): key for tenant, name, key in rows_of(conn, SQL.heads, as_json(sorted(ordering_keys)))}


def slots_used(conn: sqlite3.Connection, slots: Iterable[SlotKey]) -> dict[SlotKey, int]:
    return {(tenant, key): used for tenant, key, used in rows_of(conn, SQL.slots, as_json(sorted(slots)))}


def caps_of(
    conn: sqlite3.Connection, named: Iterable[tuple[str, str]]
) -> tuple[dict[SlotKey, int], dict[SlotKey, int]]:
    """What is in use and what is allowed of what these tenants, in these pools, count against."""
    keys = sorted({key for tenant, pool in named for key in capped_by(tenant, pool)})
    rows = rows_of(conn, SQL.caps, as_json(keys))
    return {(t, name): used for t, name, used, _ in rows}, {(t, name): cap for t, name, _, cap in rows}


def write(conn: sqlite3.Connection, writes: WriteSet) -> int:
    """Write everything. Answers how many executions did not exist before."""
    created = 0
    now_ms = writes.now_ms
    if writes.new:
        if writes.slots:
            _count_once(conn, writes)
        created = _run(conn, SQL.add_executions, writes.new, now_ms, transition(State.PENDING, now_ms))
    if writes.handed_out_again:
        _run(conn, SQL.hand_out, writes.handed_out_again, now_ms)
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
    if writes.buried:
        _run(conn, SQL.add_dead, writes.buried, now_ms)
    if writes.incidents:
        _run(conn, SQL.add_incidents, writes.incidents, now_ms)
    if writes.slots:
        change_slots(conn, writes.slots)
    return created


def _count_once(conn: sqlite3.Connection, writes: WriteSet) -> None:
    """Executions that exist already hold what they hold."""
    existing = {row[0] for row in rows_of(conn, SQL.existing, as_json([new[0] for new in writes.new]))}
    for execution, tenant, *_, slots in writes.new:
        if execution in existing:
            writes.slots.subtract(slot_key(tenant, name) for name in slots or ())


def change_slots(conn: sqlite3.Connection, slots: Mapping[SlotKey, int]) -> None:
    _run(conn, SQL.change_slots, [(*key, more) for key, more in slots.items()])
    if any(more < 0 for more in slots.values()):
        conn.execute(SQL.drop_free_slots)


def let_go_of_slots(conn: sqlite3.Connection, ended: Sequence[ExecutionId]) -> tuple[str, ...]:
    """What executions that were just ended held. Answers the names of what was freed."""
    freed: Counter[SlotKey] = Counter()
    for tenant, names, count in rows_of(conn, SQL.slots_of, as_json(ended)):
        for name in names:
            freed[slot_key(tenant, name)] -= count
    if freed:
        change_slots(conn, freed)
    return tuple(name for _, name in freed)


def _run(conn: sqlite3.Connection, query: str, rows: Sequence[Any], *parameters: Any) -> int:
    return conn.execute(query, (as_json(rows), *parameters)).rowcount
