"""Every named statement is prepared against the real schema."""

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

import pytest

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.migrations import migrate

PACKAGE = "noonday.drivers.sqlite"
FOLDER = files(PACKAGE)
PORTS = sorted(path.name.removesuffix(".sql") for path in FOLDER.joinpath("sql").iterdir())
NAMED = [(port, name) for port in PORTS for name in load(PACKAGE, port).statements]
GROW = (
    *("executions", "timeline", "jobs", "revisions", "decisions", "dead", "audit", "receipts", "usage"),
    *("users", "scheduled_notifications", "minute_buckets", "bucket_progress", "send_keys"),
    *("notification_events", "notification_decisions", "notifications_by_user"),
)
"""Tables that grow with the work."""
READ_WHOLE = {
    ("queries", "dead"): "read in order of its key, and ends at its limit",
    ("executions", "drop_audit"): "read in order of its key, and ends at its limit",
}

each_statement = pytest.mark.parametrize(("port", "name"), NAMED, ids=[f"{port}.{name}" for port, name in NAMED])


@pytest.fixture(scope="module")
def conn() -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    migrate(conn)
    yield conn
    conn.close()


def explain(conn: sqlite3.Connection, how: str, statement: str) -> list[str]:
    numbered = max([int(number) for number in re.findall(r"\?(\d+)", statement)], default=0)
    named = dict.fromkeys(re.findall(r":([a-z_]+)", statement))
    parameters = named or [None] * (numbered or statement.count("?"))
    return [str(row[3]) for row in conn.execute(f"{how} {statement}", parameters)]


@pytest.mark.slow
@each_statement
def test_a_statement_fits_the_schema(conn: sqlite3.Connection, port: str, name: str) -> None:
    assert explain(conn, "EXPLAIN", getattr(load(PACKAGE, port), name))


@pytest.mark.slow
@each_statement
def test_a_statement_begins_with_a_line_of_intent(port: str, name: str) -> None:
    first, *rest = load(PACKAGE, port).statements[name].splitlines()
    assert re.fullmatch(r"-- [A-Z].*[.:].*", first), first
    assert rest


@pytest.mark.slow
@each_statement
def test_a_statement_is_used_by_the_driver_it_belongs_to(port: str, name: str) -> None:
    sources = (folder.joinpath(f"{port}.py") for folder in (FOLDER, files("noonday.drivers.sql")))
    text = "".join(source.read_text("utf-8") for source in sources if source.is_file())
    assert re.search(rf"\b(SQL|self\._sql)\.{name}\b", text)


@pytest.mark.slow
@each_statement
def test_a_statement_does_not_read_a_table_whole_that_grows_with_the_work(
    conn: sqlite3.Connection, port: str, name: str
) -> None:
    plan = explain(conn, "EXPLAIN QUERY PLAN", load(PACKAGE, port).statements[name])
    whole = [step for step in plan if re.fullmatch(rf"SCAN ({'|'.join(GROW)})", step)]
    assert bool(whole) == ((port, name) in READ_WHOLE), plan


SEARCHES = {
    ("execution_search", "search"): "SEARCH x USING INDEX executions_id (id>? AND id<?)",
    ("execution_search", "search_of_job"): "SEARCH x USING PRIMARY KEY (job_id=? AND id>? AND id<?)",
    ("execution_search", "groups"): "SEARCH x USING INDEX executions_id (id>? AND id<?)",
    ("selection", "jobs"): "SEARCH j USING PRIMARY KEY (tenant=? AND id<?)",
    ("selection", "dead_letters"): "SEARCH d USING INDEX dead_open (tenant=? AND execution_id<?)",
}
"""Searches that examine a limited number of rows, and how they read these in order."""


@pytest.mark.parametrize(("port", "name"), SEARCHES, ids=[f"{port}.{name}" for port, name in SEARCHES])
def test_a_search_examines_rows_in_the_order_of_an_index_and_sorts_none_of_them(
    conn: sqlite3.Connection, port: str, name: str
) -> None:
    plan = explain(conn, "EXPLAIN QUERY PLAN", load(PACKAGE, port).statements[name])
    at = plan.index("MATERIALIZE looked")
    assert plan[at + 1] == SEARCHES[port, name]
    assert plan[at + 2] == "SCAN l"


@pytest.mark.parametrize("name", ["due_operations", "next_due"])
def test_due_operations_are_found_by_their_time(conn: sqlite3.Connection, name: str) -> None:
    plan = explain(conn, "EXPLAIN QUERY PLAN", load(PACKAGE, "operations").statements[name])
    assert any("operations USING" in step and "operations_due" in step for step in plan), plan
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan
