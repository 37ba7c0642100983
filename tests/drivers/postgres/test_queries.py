"""Every named statement is prepared against the real schema."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from typing import Any

import pytest
import pytest_asyncio

from noonday.drivers.postgres.connection import Session
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.sql.named_sql import load
from tests.drivers.postgres.own_schema import opened, own_schema
from tests.support.factories import NOW_MS

PACKAGE = "noonday.drivers.postgres"
FOLDER = files(PACKAGE)
PORTS = sorted(path.name.removesuffix(".sql") for path in FOLDER.joinpath("sql").iterdir())
NAMED = [(port, name) for port in PORTS for name in load(PACKAGE, port).statements]
GROW = ("executions", "timeline", "jobs", "revisions", "decisions", "dead", "audit", "receipts", "usage", "users")
"""Tables that grow with the work."""
READ_WHOLE = {
    ("executions", "drop_audit"): "read in order of its key, and ends at its limit",
    ("executions", "drop_unused_revisions"): "what stays is as little as what is open, and it ends at its limit",
}
_FILL = """
CREATE FUNCTION id_at(ms bigint, n bigint) RETURNS uuid LANGUAGE sql
RETURN (lpad(to_hex(ms), 12, '0') || '80000000' || lpad(to_hex(n), 12, '0'))::uuid;
CREATE TABLE numbers AS SELECT n, id_at(NOW_MS - 20000 + n, n) AS job FROM generate_series(1, 20000) n;
INSERT INTO jobs (tenant, id, revision, state, lane, watch, anchor_ms, created_ms, updated_ms, type, pool, handler, name,
                  unique_key, spec)
SELECT 't' || n % 20, job, 1, 0, 1, 0, n, n, n, 'ONE_TIME', 'p' || n % 5, 'h' || n % 50, 'n' || n, 'k' || n, '{}' FROM numbers;
INSERT INTO timeline (key, due_ms, nominal_ms, number, partition, kind, lane, early, recurring, tenant, pool)
SELECT job, NOW_MS + n * 1000, 0, 1, n % 256, 0, 1, 0, n % 2, 't' || n % 20, 'p' || n % 5 FROM numbers;
INSERT INTO executions (id, job_id, nominal_ms, due_ms, created_ms, fired_ms, finished_ms, attempt, dispatch, revision, state,
                        cause, lane, watch, tenant, pool, handler, worker_id, transitions)
SELECT id_at(NOW_MS + (n % 4 - 1) * 86400000, n), job, 0, 0, 0, n, n, 1, 1, 1, CASE WHEN n % 1000 < 2 THEN n % 1000 ELSE 5 END,
       0, 1, 0, 't' || n % 20, 'p' || n % 5, 'h' || n % 50, 'w' || n % 30, '' FROM numbers;
INSERT INTO revisions (job_id, revision, spec) SELECT job, 1, '{}' FROM numbers;
INSERT INTO decisions SELECT job, n, n, 1, 'MISSED', 'r', n FROM numbers;
INSERT INTO dead SELECT id, tenant, job_id, pool, handler, finished_ms, 1 FROM executions;
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) SELECT 't' || n % 20, n, 's', 'a', 't' || n, '{}' FROM numbers;
INSERT INTO usage SELECT 't' || n % 200, n / 200, 1, 1, 0, 1, 1 FROM numbers;
INSERT INTO receipts SELECT 't' || n % 20, 'k' || n, 'f', n, 200, '' FROM numbers;
INSERT INTO users SELECT 't' || n % 20, 'u' || n, n, '', n, n FROM numbers;
""".replace("NOW_MS", str(NOW_MS))
"""So many rows that the access path matters; few of them are open."""
_OF_THE_OPEN = """
SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema::regnamespace AND pg_get_expr(i.indpred, i.indrelid) ~ 'state|archived'
"""
"""Indexes of open rows. They are as large as the present work, and may be read whole."""

each_statement = pytest.mark.parametrize(("port", "name"), NAMED, ids=[f"{port}.{name}" for port, name in NAMED])
one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[Session]:
    """A session with the settings of the driver's sessions."""
    async with own_schema() as options, opened(options) as database:
        await migrate(database)
        async with database.session() as session:
            await session.execute(f"SELECT make_partitions({NOW_MS}, 3)")
            await session.execute(_FILL)
            # Not of the whole database: other tests build indexes there.
            for row in await session.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema"):
                await session.execute(f'ANALYZE "{row["tablename"]}"')
            # Show whole plans, although the parameters are NULL.
            await session.execute("SET enable_partition_pruning = off")
            yield session


async def plan_of(session: Session, statement: str) -> list[dict[str, Any]]:
    """The steps of the generic plan of a statement."""
    parameters = (await session.prepare(statement)).get_parameters()
    await session.execute(f"PREPARE it AS {statement}")
    try:
        given = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        text = await session.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE it {given}")
    finally:
        await session.execute("DEALLOCATE it")
    return [step for plan in json.loads(text) for step in steps(plan["Plan"])]


def steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from steps(part)


def whole_reads(plan: list[dict[str, Any]], of_the_open: set[str]) -> list[str]:
    return [f"{step['Node Type']} of {table_of(step)}" for step in plan if reads_whole(step, of_the_open)]


def reads_whole(step: dict[str, Any], of_the_open: set[str]) -> bool:
    if step["Node Type"] == "Seq Scan":
        return table_of(step) in GROW
    unbound = "Index Name" in step and "Index Cond" not in step
    return unbound and table_of(step) in GROW and step["Index Name"] not in of_the_open


def table_of(step: dict[str, Any]) -> str:
    """The table that a step reads, directly or through a partition or an index."""
    read: str = step.get("Relation Name") or step["Index Name"]
    return read.split("_")[0]


@each_statement
@one_loop
async def test_a_statement_fits_the_schema(session: Session, port: str, name: str) -> None:
    assert await plan_of(session, load(PACKAGE, port).statements[name])


@each_statement
def test_a_statement_begins_with_a_line_of_intent(port: str, name: str) -> None:
    first, *rest = load(PACKAGE, port).statements[name].splitlines()
    assert re.fullmatch(r"-- [A-Z].*[.:].*", first), first
    assert rest


def text_of_driver(port: str) -> str:
    """The module of the port, and the modules beside it that load the statements of the port."""
    sources = [folder.joinpath(f"{port}.py") for folder in (FOLDER, files("noonday.drivers.sql"))]
    texts = [source.read_text("utf-8") for source in sources if source.is_file()]
    beside = (source.read_text("utf-8") for source in FOLDER.iterdir() if source.name.endswith(".py"))
    return "".join(texts) + "".join(text for text in beside if f'load("{PACKAGE}", "{port}")' in text)


@each_statement
def test_a_statement_is_used_by_the_driver_it_belongs_to(port: str, name: str) -> None:
    assert re.search(rf"\b(SQL|self\._sql)\.{name}\b", text_of_driver(port))


@each_statement
@one_loop
async def test_a_statement_does_not_read_a_table_whole_that_grows_with_the_work(
    session: Session, port: str, name: str
) -> None:
    of_the_open = {row[0] for row in await session.fetch(_OF_THE_OPEN)}
    whole = whole_reads(await plan_of(session, load(PACKAGE, port).statements[name]), of_the_open)
    assert bool(whole) == ((port, name) in READ_WHOLE), whole


@one_loop
async def test_a_whole_read_is_recognised(session: Session) -> None:
    found = whole_reads(await plan_of(session, "SELECT count(*) FROM timeline WHERE pool = $1"), set())
    assert found
    found = whole_reads(await plan_of(session, "SELECT * FROM executions WHERE nominal_ms > $1"), set())
    assert len(found) == 4


SEARCHES = {
    ("execution_search", "search"): "executions_pkey",
    ("execution_search", "search_of_job"): "executions_job",
    ("execution_search", "groups"): "executions_pkey",
    ("selection", "jobs"): "jobs_pkey",
    ("selection", "dead_letters"): "dead_open",
}
"""Searches that examine a limited number of rows, and the index whose order they read these in."""


@pytest.mark.parametrize(("port", "name"), SEARCHES, ids=[f"{port}.{name}" for port, name in SEARCHES])
@one_loop
async def test_a_search_examines_rows_in_the_order_of_an_index_and_sorts_none_of_them(
    session: Session, port: str, name: str
) -> None:
    plan = await plan_of(session, load(PACKAGE, port).statements[name])
    (looked,) = [step for step in plan if step.get("Subplan Name") == "CTE looked"]
    within = list(steps(looked))
    assert looked["Node Type"] == "Limit"
    assert not [
        step for step in within if step["Node Type"] in ("Sort", "Incremental Sort", "Seq Scan", "Bitmap Heap Scan")
    ]
    used = {step["Index Name"] for step in within if "Index Name" in step}
    wanted = SEARCHES[port, name]
    assert used
    assert {await parent_of(session, each) for each in used} == {wanted}


async def parent_of(session: Session, index: str) -> str:
    """The index of a partitioned table that an index of a partition is a part of; any other index itself."""
    parent = await session.fetchval(
        "SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = to_regclass($1)", f'"{index}"'
    )
    return str(parent or index).rpartition(".")[2]


OF_OPERATIONS = {
    "due_operations": "operations_due",
    "next_due": "operations_due",
    "operations": "operations_pkey",
    "find_operation": "operations_pkey",
    "set_operation": "operations_pkey",
}


@pytest.mark.parametrize("name", OF_OPERATIONS)
@one_loop
async def test_an_operation_is_found_by_an_index(session: Session, name: str) -> None:
    await session.execute("SET enable_seqscan = off")  # the table is small, and may be read whole
    try:
        plan = await plan_of(session, load(PACKAGE, "operations").statements[name])
    finally:
        await session.execute("RESET enable_seqscan")
    assert {step["Index Name"] for step in plan if "Index Name" in step} == {OF_OPERATIONS[name]}
