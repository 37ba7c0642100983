"""Notes every change of an execution in the store, with the reference time of its commit, and keeps rows that are removed."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from noonday.model.execution import State

_PRUNED = ("jobs", "executions", "decisions", "dead")
_SEEN = "sim_now(), NEW.id, NEW.state, NEW.dispatch, NEW.fired_ms IS NOT NULL, NEW.buffered, NEW.worker_id"


class Seen(NamedTuple):
    """An execution as one commit left it."""

    at_ms: int
    state: State
    dispatch: int
    fired: bool
    """Whether it was dispatched: it is off the timeline."""
    buffered: bool
    worker: str | None


def observe(conn: sqlite3.Connection, now_ms: Callable[[], int]) -> None:
    """Begin to note changes. A change that is rolled back is not noted: the notes are part of its transaction."""
    conn.create_function("sim_now", 0, now_ms)
    conn.execute(
        """CREATE TEMP TABLE seen (at_ms INTEGER, id TEXT, state INTEGER, dispatch INTEGER, fired INTEGER, buffered INTEGER,
                                   worker TEXT)"""
    )
    for event in ("INSERT", "UPDATE OF state, dispatch, fired_ms, buffered, worker_id"):
        name = event.split()[0].lower()
        conn.execute(
            f"""CREATE TEMP TRIGGER seen_{name} AFTER {event} ON main.executions
                BEGIN INSERT INTO seen VALUES ({_SEEN}); END"""
        )
    for table in _PRUNED:
        columns = ", ".join(f"OLD.{row[1]}" for row in conn.execute(f"PRAGMA main.table_info({table})"))
        conn.execute(f"CREATE TEMP TABLE pruned_{table} AS SELECT *, 0 AS pruned_ms FROM main.{table} WHERE false")
        conn.execute(
            f"""CREATE TEMP TRIGGER prune_{table} AFTER DELETE ON main.{table}
                BEGIN INSERT INTO pruned_{table} VALUES ({columns}, sim_now()); END"""
        )


def seen(conn: sqlite3.Connection) -> Mapping[str, Sequence[Seen]]:
    """What every execution was, commit by commit."""
    found: dict[str, list[Seen]] = defaultdict(list)
    for at_ms, id_, state, dispatch, fired, buffered, worker in conn.execute(
        "SELECT at_ms, id, state, dispatch, fired, buffered, worker FROM seen ORDER BY rowid"
    ):
        found[id_].append(Seen(at_ms, State(state), dispatch, bool(fired), bool(buffered), worker))
    return found
