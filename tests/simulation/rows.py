"""The rows that a run left in its store, by name, as the checker reads them.

Another store implements `Rows` to be checked alike.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec

from noonday.model.execution import State
from noonday.model.job import JobSpec


class StoredJob(NamedTuple):
    id: str
    tenant: str
    state: int
    revision: int
    spec: JobSpec
    """The definition without its payload."""
    anchor_ms: int
    created_ms: int


class StoredTransition(NamedTuple):
    """One transition of an execution."""

    state: State
    at_ms: int
    worker: str | None = None
    reason: object = None


@dataclass(frozen=True, slots=True)
class StoredExecution:
    id: str
    job: str
    tenant: str
    nominal_ms: int
    due_ms: int
    state: State
    attempt: int
    dispatch: int
    revision: int
    cause: int
    created_ms: int
    finished_ms: int | None
    revocation: str | None
    retry_of: str | None
    transitions: tuple[StoredTransition, ...]

    @property
    def is_open(self) -> bool:
        return self.state < State.FAILED


class StoredDecision(NamedTuple):
    job: str
    from_ms: int
    to_ms: int
    count: int
    outcome: str
    decided_ms: int
    reason: str = ""


class Resumed(NamedTuple):
    """A paused job that became active in one commit, and the end that its pause had."""

    job: str
    until_ms: int | None
    at_ms: int
    """The reference time of the commit."""


class Rows(Protocol):
    """All rows at the end of a run, including rows that retention removed."""

    @property
    def jobs(self) -> Mapping[str, StoredJob]: ...
    @property
    def executions(self) -> Mapping[str, StoredExecution]: ...
    @property
    def decisions(self) -> Mapping[str, Sequence[StoredDecision]]: ...
    @property
    def executions_of(self) -> Mapping[str, Sequence[StoredExecution]]: ...
    @property
    def resumed(self) -> Mapping[str, Sequence[Resumed]]: ...


class SqliteRows:
    """Rows of a SQLite store, or of a copy of another store in the tables of one."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def _rows(self, columns: str, table: str) -> list[tuple]:  # type: ignore[type-arg]
        return self._conn.execute(f"SELECT {columns} FROM {with_pruned(self._conn, table)}").fetchall()

    @cached_property
    def jobs(self) -> Mapping[str, StoredJob]:
        rows = self._rows("id, tenant, state, revision, spec, anchor_ms, created_ms", "jobs")
        return {
            id_: StoredJob(id_, tenant, state, revision, _spec(spec), *rest)
            for id_, tenant, state, revision, spec, *rest in rows
        }

    @cached_property
    def executions(self) -> Mapping[str, StoredExecution]:
        rows = self._rows(
            "id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, created_ms, finished_ms, "
            "revocation, retry_of, transitions",
            "executions",
        )
        return {row[0]: StoredExecution(*row[:5], State(row[5]), *row[6:14], _transitions(row[14])) for row in rows}

    @cached_property
    def executions_of(self) -> Mapping[str, Sequence[StoredExecution]]:
        found: dict[str, list[StoredExecution]] = defaultdict(list)
        for execution in self.executions.values():
            found[execution.job].append(execution)
        return found

    @cached_property
    def decisions(self) -> Mapping[str, Sequence[StoredDecision]]:
        found: dict[str, list[StoredDecision]] = defaultdict(list)
        for row in self._rows("job_id, from_ms, to_ms, count, outcome, decided_ms, reason", "decisions"):
            found[row[0]].append(StoredDecision(*row))
        return found

    @cached_property
    def resumed(self) -> Mapping[str, Sequence[Resumed]]:
        found: dict[str, list[Resumed]] = defaultdict(list)
        if self._conn.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'resumed'").fetchone():
            for row in self._conn.execute("SELECT job, until_ms, at_ms FROM resumed ORDER BY at_ms"):
                found[row[0]].append(Resumed(*row))
        return found


def with_pruned(conn: sqlite3.Connection, table: str) -> str:
    """Return the FROM clause that reads a table together with the rows that retention removed from it, if these were noted."""
    if conn.execute("SELECT 1 FROM sqlite_temp_master WHERE name = ?", (f"pruned_{table}",)).fetchone() is None:
        return table
    columns = ", ".join(row[1] for row in conn.execute(f"PRAGMA main.table_info({table})"))
    return f"(SELECT {columns} FROM main.{table} UNION ALL SELECT {columns} FROM pruned_{table})"


_spec = msgspec.json.Decoder(JobSpec).decode


def _transitions(text: str) -> tuple[StoredTransition, ...]:
    return tuple(StoredTransition(State(state), *rest) for state, *rest in msgspec.json.decode(f"[{text}]"))
