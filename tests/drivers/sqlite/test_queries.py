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
GROW = ("executions", "timeline", "jobs", "revisions", "decisions", "dead", "audit", "receipts", "usage")
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
