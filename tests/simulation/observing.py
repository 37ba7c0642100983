"""Note every change of an execution in the store, with the reference time of its commit, and keep rows that are removed."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from noonday.model.execution import State
from noonday.model.ids import partition_of

PRUNED = ("jobs", "executions", "decisions", "dead")
_SEEN = "sim_now(), NEW.id, NEW.state, NEW.dispatch, NEW.fired_ms IS NOT NULL, NEW.buffered, NEW.worker_id"


class Seen(NamedTuple):
    """An execution as one commit left it."""

    at_ms: int
    state: State
    dispatch: int
    fired: bool
    """Whether it was dispatched: it is not on the timeline."""
    buffered: bool
    worker: str | None


def observe(conn: sqlite3.Connection, now_ms: Callable[[], int]) -> None:
    """Start to note changes. The notes are part of the transaction, so a change that is rolled back is not noted."""
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
    _observe_owners(conn)
    conn.execute("CREATE TEMP TABLE resumed (job TEXT, until_ms INTEGER, at_ms INTEGER)")
    conn.execute(
        """CREATE TEMP TRIGGER resumed AFTER UPDATE OF state ON main.jobs WHEN OLD.state = 1 AND NEW.state = 0
           BEGIN INSERT INTO resumed VALUES (OLD.id, OLD.paused_until_ms, sim_now()); END"""
    )
    for table in PRUNED:
        columns = ", ".join(f"OLD.{row[1]}" for row in conn.execute(f"PRAGMA main.table_info({table})"))
        conn.execute(f"CREATE TEMP TABLE pruned_{table} AS SELECT *, 0 AS pruned_ms FROM main.{table} WHERE false")
        conn.execute(
            f"""CREATE TEMP TRIGGER prune_{table} AFTER DELETE ON main.{table}
                BEGIN INSERT INTO pruned_{table} VALUES ({columns}, sim_now()); END"""
        )


def _observe_owners(conn: sqlite3.Connection) -> None:
    """Note each execution that an instance fires while another one owns its partition."""
    conn.create_function("sim_partition", 1, partition_of, deterministic=True)
    conn.execute("CREATE TEMP TABLE fired_by_others (at_ms INTEGER, id TEXT, partition INTEGER, by TEXT, owner TEXT)")
    conn.execute(
        """CREATE TEMP TRIGGER fired_by_others AFTER INSERT ON main.batches BEGIN
               INSERT INTO fired_by_others SELECT sim_now(), x.id, p.partition, NEW.owner, p.owner
               FROM json_each(NEW.members) m JOIN main.executions x ON x.id = m.value ->> 0 AND x.fired_ms = NEW.fired_ms
                    JOIN main.partitions p ON p.partition = sim_partition(x.job_id) WHERE p.owner <> NEW.owner;
           END"""
    )


def check_owners(conn: sqlite3.Connection) -> Iterator[str]:
    """I5: the store accepts no fire under an old epoch. A copy of another store has no notes of this."""
    if not conn.execute("SELECT 1 FROM sqlite_temp_master WHERE name = 'fired_by_others'").fetchone():
        return
    for at_ms, execution, partition, by, owner in conn.execute("SELECT * FROM fired_by_others"):
        yield f"I5: {by} fired {execution} of partition {partition} at {at_ms}, which {owner} owned under a later epoch"


def seen(conn: sqlite3.Connection) -> Mapping[str, Sequence[Seen]]:
    """The state of every execution, commit by commit."""
    found: dict[str, list[Seen]] = defaultdict(list)
    for at_ms, id_, state, dispatch, fired, buffered, worker in conn.execute(
        "SELECT at_ms, id, state, dispatch, fired, buffered, worker FROM seen ORDER BY rowid"
    ):
        found[id_].append(Seen(at_ms, State(state), dispatch, bool(fired), bool(buffered), worker))
    return found
