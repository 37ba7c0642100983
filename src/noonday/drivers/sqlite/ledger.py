"""Collects what one request changes and writes it set by set; knows the one way to close an execution."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

from noonday.drivers.sqlite.queries import load
from noonday.model.execution import WATCH_KEY, WATCH_OVERLAP, State
from noonday.model.firing import LANES, Decision, Entry, Kind
from noonday.model.ids import ExecutionId, JobId, partition_of
from noonday.model.job import Job, JobSpec, Overlap
from noonday.ports.jobs import Execution

SQL = load("ledger")
_encode = msgspec.json.Encoder().encode
_executions = msgspec.json.Decoder(list[Execution])
_rows = msgspec.json.Decoder(list[list[Any]])

SlotKey = tuple[str, str]
_SIZES = (500, 50, 5, 1)


def as_json(value: Any) -> str:
    return _encode(value).decode()


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


def rows_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[list[Any]]:
    """The rows of a query that answers one JSON array of arrays."""
    return _rows.decode(conn.execute(query, parameters).fetchone()[0])


def executions_of(conn: sqlite3.Connection, query: str, *parameters: Any) -> list[Execution]:
    return _executions.decode(conn.execute(query, parameters).fetchone()[0])


def move(state: State, at_ms: int, worker: str | None = None, reason: object = None) -> str:
    """One move of an execution, as it is kept."""
    if reason is not None:
        return as_json([int(state), at_ms, worker, reason])
    return f'[{state:d},{at_ms},"{worker}"]' if worker else f"[{state:d},{at_ms}]"


def dispatch_entry(execution: Execution, due_ms: int) -> Entry:
    return Entry(
        due_ms=due_ms,
        key=execution.id,
        kind=Kind.DISPATCH,
        number=execution.dispatch,
        nominal_ms=execution.nominal_ms,
        partition=partition_of(execution.job_id),
        tenant=execution.tenant,
        pool=execution.pool,
        lane=execution.lane,
        staged=int(not execution.watch),
        planned=0,
    )


def watch_of(spec: JobSpec) -> int:
    """What whoever closes an execution of this job has to look after."""
    return (0 if spec.overlap is Overlap.ALLOW else WATCH_OVERLAP) | (WATCH_KEY if spec.concurrency else 0)


class Ledger:
    """The writes of one request. Nothing reaches the database before `flush`."""

    def __init__(self, conn: sqlite3.Connection, now_ms: int) -> None:
        self.conn = conn
        self.now_ms = now_ms
        self.entries: list[Entry] = []
        """What is on the timeline now and should be on the hot index."""
        self.flags: list[tuple[str, ExecutionId, int, str]] = []
        self.freed: set[SlotKey] = set()
        self.rested: Counter[str] = Counter()
        """How many executions ended in each state."""
        self._new: list[tuple[Any, ...]] = []
        self._settled: list[tuple[Any, ...]] = []
        self._put: list[tuple[Any, ...]] = []
        self._drop: list[str] = []
        self._decisions: list[tuple[Any, ...]] = []
        self._dead: list[str] = []
        self._let_go: list[Execution] = []
        self._closed: list[Execution] = []

    def add_execution(
        self,
        execution: ExecutionId,
        tenant: str,
        job_id: str,
        nominal_ms: int,
        due_ms: int,
        *,
        cause: int = 0,
        fired_ms: int | None = None,
        buffered: int = 0,
        retry_of: str | None = None,
        slot: str | None = None,
    ) -> None:
        self._new.append((execution, tenant, job_id, nominal_ms, due_ms, cause, fired_ms, buffered, retry_of, slot))

    def settle(self, was: Execution, now: Execution, moves: str) -> None:
        """An execution moves from what it was to what it is now. Whoever is not handed out any more holds no slot."""
        closed = now.state >= State.FAILED
        if closed:
            self.rested[now.state.name] += 1
        lets_go = was.slot is not None and (closed or now.fired_ms is None)
        self._settled.append(
            (
                now.id,
                int(now.state),
                now.attempt,
                now.dispatch,
                now.revision,
                now.fired_ms,
                now.buffered,
                now.worker_id,
                now.started_ms,
                now.finished_ms,
                now.cancel,
                now.failure,
                now.progress,
                now.result,
                None if lets_go else now.slot,
                now.pool,
                now.handler,
                now.lane,
                now.watch,
                moves,
            )
        )
        if lets_go:
            self._let_go.append(was)
        if closed and was.watch & WATCH_OVERLAP:
            self._closed.append(now)

    def close(self, was: Execution, state: State, reason: str) -> None:
        """End an execution that nobody holds."""
        now = msgspec.structs.replace(
            was, state=state, finished_ms=self.now_ms, fired_ms=None, buffered=0, cancel=reason, progress=None
        )
        self.drop([was.id])
        self.settle(was, now, "," + move(state, self.now_ms, None, reason))

    def rebase(self, was: Execution, job: Job) -> Execution:
        """What an execution that has not started becomes under the job as it is now."""
        return msgspec.structs.replace(
            was,
            revision=job.revision,
            pool=job.spec.target.pool,
            handler=job.spec.target.handler,
            lane=LANES.index(job.spec.priority),
            watch=was.watch | watch_of(job.spec),
            cancel=None,
            progress=None,
        )

    def wait(self, execution: Execution, due_ms: int | None) -> None:
        """Give an execution a dispatch row; without a due time it is held until it is released."""
        entry = dispatch_entry(execution, due_ms or 0)
        self.put(entry, due_ms)

    def put(self, entry: Entry, due_ms: int | None, runs_left: int | None = None) -> None:
        _, *rest = msgspec.structs.astuple(entry)
        self._put.append((due_ms, *rest, runs_left))
        if due_ms is not None:
            self.entries.append(entry)

    def drop(self, keys: Iterable[str]) -> None:
        self._drop.extend(keys)

    def decide(self, decisions: Sequence[Decision]) -> None:
        self._decisions.extend(msgspec.structs.astuple(d) for d in decisions)

    def bury(self, execution: ExecutionId) -> None:
        self._dead.append(execution)

    def flush(self) -> int:
        """Write everything. Answers how many executions did not exist before."""
        created = self._write_executions()
        if self._drop:
            self._run(SQL.drop_timeline, self._drop)
        if self._put:
            self._run(SQL.put_timeline, self._put)
        if self._decisions:
            self._run(SQL.add_decisions, self._decisions, self.now_ms)
        if self._dead:
            self._run(SQL.add_dead, self._dead, self.now_ms)
        self._put, self._drop, self._decisions, self._dead = [], [], [], []
        if self._let_go or self._closed:
            self._let_others_in()
        return created

    def _write_executions(self) -> int:
        created = 0
        if self._new:
            created = self._run(SQL.add_executions, self._new, self.now_ms, move(State.PENDING, self.now_ms))
        if self._settled:
            self._run(SQL.set_executions, self._settled)
        self._new, self._settled = [], []
        return created

    def _run(self, query: str, rows: Sequence[Any], *parameters: Any) -> int:
        return self.conn.execute(query, (as_json(rows), *parameters)).rowcount

    def _let_others_in(self) -> None:
        let_go, closed, self._let_go, self._closed = self._let_go, self._closed, [], []
        self._free_slots(let_go)
        self._place_buffered({e.job_id for e in closed})
        if self._settled or self._put:
            self.flush()

    def _free_slots(self, executions: Sequence[Execution]) -> None:
        returned = Counter((e.tenant, e.slot) for e in executions if e.slot is not None)
        if returned:
            used = slots_used(self.conn, returned)
            set_slots(self.conn, {slot: max(0, used.get(slot, 0) - n) for slot, n in returned.items()})
            self.freed.update(returned)

    def _place_buffered(self, jobs: set[JobId]) -> None:
        """The last open execution of a job was closed: the oldest one that waited for it has its turn."""
        for waiting in open_executions(self.conn, jobs).values():
            if all(e.buffered for e in waiting):
                turn = msgspec.structs.replace(waiting[0], buffered=0)
                self.settle(waiting[0], turn, "")
                self.wait(turn, max(self.now_ms, turn.due_ms))


def open_executions(conn: sqlite3.Connection, jobs: Iterable[JobId]) -> dict[JobId, list[Execution]]:
    """The open executions of each job that has any, oldest first."""
    by_job: dict[JobId, list[Execution]] = {}
    wanted = sorted(jobs)
    if wanted:
        for execution in executions_of(conn, SQL.open_of_jobs, as_json(wanted)):
            by_job.setdefault(execution.job_id, []).append(execution)
    return by_job


class Limit(msgspec.Struct, frozen=True):
    overlap: Overlap
    key: str | None
    limit: int | None


def limits_of(conn: sqlite3.Connection, jobs: Iterable[tuple[str, str]]) -> dict[str, Limit]:
    """What watched jobs, named by (tenant, job), say about overlap and concurrency."""
    rows = rows_of(conn, SQL.limits_of_jobs, as_json(sorted(jobs)))
    return {job_id: Limit(Overlap(overlap or "ALLOW"), key, limit) for job_id, _, overlap, key, limit in rows}


def slots_used(conn: sqlite3.Connection, slots: Iterable[SlotKey]) -> dict[SlotKey, int]:
    return {(tenant, key): used for tenant, key, used in rows_of(conn, SQL.slots, as_json(sorted(slots)))}


def set_slots(conn: sqlite3.Connection, used: dict[SlotKey, int]) -> None:
    if used:
        conn.execute(SQL.set_slots, (as_json([(tenant, key, n) for (tenant, key), n in used.items()]),))
        if not all(used.values()):
            conn.execute(SQL.drop_free_slots)
