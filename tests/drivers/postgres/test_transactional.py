"""Jobs that are created, and ends that are recorded, in a caller's transaction."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from noonday.drivers.postgres.store import PostgresStore
from noonday.drivers.postgres.transactional import CallersConnection, CallersJobs, CallersRegistry, PostgresCompletions
from noonday.model.change import NewJob
from noonday.model.errors import Conflict, InvalidInput
from noonday.model.execution import Outcome, State
from noonday.model.ids import WorkerId
from noonday.model.job import Concurrency, Job, JobSpec, Overlap
from noonday.model.message import Dispatch, Report
from noonday.model.retention import Retention
from noonday.model.usage import UsageTotals
from tests.docs.pages import DOCS, blocks
from tests.support.callers import CALLERS, Caller
from tests.support.crank import Crank, first_fire, states_through
from tests.support.factories import (
    DAY,
    HANDLER,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    WORKER,
    audit,
    every,
    failure,
    hello,
    job,
    report,
    spec,
)
from tests.support.postgres import postgres_store
from tests.support.servers_up import postgres_url

PLAIN = spec()
WATCHED = spec(overlap=Overlap.BUFFER_ALL)
KEYED = spec(concurrency=Concurrency("db", 1))
each_kind = pytest.mark.parametrize("kind", [PLAIN, WATCHED, KEYED], ids=["plain", "overlap", "key"])
OTHER = WorkerId("w-2")


class Abandoned(Exception):
    """An error of the caller's own code."""


async def _abandon(caller: Caller, writing: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(Abandoned):
        async with caller.transaction():
            await writing
            raise Abandoned


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    async with postgres_store(lead_ms=0) as store:
        yield store


@pytest.fixture
async def crank(store: PostgresStore) -> Crank:
    crank = Crank(store)
    await crank.own()
    return crank


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    async with CALLERS[request.param]() as caller:
        yield caller


@pytest.fixture
def schema(store: PostgresStore) -> str:
    return store.database.options.schema


# Creating


async def add(caller: Caller, schema: str, *jobs: Job) -> None:
    callers = CallersJobs(CallersConnection(caller.connection, schema))
    new = [NewJob(each, first_fire(each, NOW_MS)) for each in jobs]
    await callers.add(new, upsert=_never, audit=audit(), seal=None)


def _never(before: object, wanted: object) -> Any:
    raise AssertionError("nothing is changed here")


async def test_a_job_is_there_once_the_transaction_is_committed(
    caller: Caller, crank: Crank, store: PostgresStore, schema: str
) -> None:
    wanted = job(spec(name="näme \\u0000 'x'", timeout_sec=1.5))
    async with caller.transaction():
        await add(caller, schema, wanted)
        assert await crank.timeline() == []
    row = await crank.store.query_store.find_job(TENANT, wanted.id)
    assert row is not None
    assert row.job == wanted
    assert [entry.key for entry in await crank.timeline()] == [wanted.id]
    assert await store.database.value("SELECT count(*) FROM audit") == 1
    assert (await crank.fire_one()).payload == wanted.payload


@pytest.mark.parametrize("key", [Concurrency("k", 3), Concurrency("k", 1, ordered=True)], ids=["key", "line"])
async def test_a_job_is_stored_as_a_desk_stores_it(
    caller: Caller, crank: Crank, store: PostgresStore, schema: str, key: Concurrency
) -> None:
    plain, theirs = (job(spec(concurrency=key, start_deadline_sec=9)) for _ in range(2))
    await crank.add(plain)
    async with caller.transaction():
        await add(caller, schema, theirs)
    rows = "SELECT to_jsonb(j) - 'id', to_jsonb(t) - 'key' - 'partition' FROM jobs j JOIN timeline t ON t.key = j.id"
    first, second = await store.database.fetch(rows)
    assert tuple(first) == tuple(second)


async def test_a_job_is_gone_with_the_transaction(caller: Caller, crank: Crank, schema: str) -> None:
    wanted = job()
    await _abandon(caller, add(caller, schema, wanted))
    assert await crank.store.query_store.find_job(TENANT, wanted.id) is None
    assert await crank.timeline() == []


async def test_the_session_of_the_caller_stays_as_it_was(caller: Caller, crank: Crank, schema: str) -> None:
    look = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE source <> 'default'"
    async with caller.transaction():
        before = await caller.value(look)
        await add(caller, schema, job())
        assert await caller.value(look) == before


async def test_a_unique_key_that_is_taken_is_refused_and_the_transaction_goes_on(
    caller: Caller, crank: Crank, store: PostgresStore, schema: str
) -> None:
    there, free = job(spec(unique_key="k")), job(spec(unique_key="free"))
    async with caller.transaction():
        await add(caller, schema, there)
        with pytest.raises(Conflict, match=f"'k' by job {there.id}"):
            await add(caller, schema, job(), job(spec(unique_key="k")))
        await add(caller, schema, free)
    found = await store.database.fetch("SELECT id::text FROM jobs ORDER BY id")
    assert [row[0] for row in found] == [there.id, free.id]


async def test_outside_of_a_transaction_nothing_is_done(caller: Caller, schema: str) -> None:
    with pytest.raises(Conflict, match="not inside a transaction"):
        await add(caller, schema, job())


async def test_a_connection_of_psycopg_begins_its_transaction_by_itself(crank: Crank, schema: str) -> None:
    wanted = job()
    async with await psycopg.AsyncConnection.connect(postgres_url()) as connection:
        callers = CallersJobs(CallersConnection(connection, schema))
        await callers.add([NewJob(wanted, first_fire(wanted, NOW_MS))], upsert=_never, audit=None, seal=None)
        assert await crank.timeline() == []
    assert [entry.key for entry in await crank.timeline()] == [wanted.id]


def test_unsupported_connection_is_refused_by_name() -> None:
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as plain,
        pytest.raises(InvalidInput, match=r"sqlite3\.Connection cannot be used"),
    ):
        CallersConnection(plain, "noonday")


async def test_pools_and_handlers_are_known(caller: Caller, crank: Crank, schema: str) -> None:
    await crank.settle(signs=[hello()])
    async with caller.transaction():
        registry = CallersRegistry(CallersConnection(caller.connection, schema))
        assert await registry.pool_names() == await crank.store.settings_store.pool_names()
        assert await registry.find_handler(POOL, HANDLER) == await crank.store.settings_store.find_handler(
            POOL, HANDLER
        )
        assert await registry.find_handler(POOL, "no_such") is None
        assert await registry.handler_names(POOL, 10) == [HANDLER]


# Completing


async def fired(crank: Crank, of: JobSpec = PLAIN) -> Dispatch:
    await crank.add(job(of))
    return await crank.fire_one()


async def complete(caller: Caller, schema: str, reported: Report) -> None:
    await PostgresCompletions(schema).complete(caller.connection, reported, NOW_MS + 2 * SECOND)


@each_kind
async def test_an_end_is_there_once_the_transaction_is_committed(
    caller: Caller, crank: Crank, schema: str, kind: JobSpec
) -> None:
    dispatch = await fired(crank, kind)
    async with caller.transaction():
        await complete(caller, schema, report(dispatch, result=b"42", progress=b"all"))
        assert (await crank.look(dispatch)).state is State.PENDING
    found = await crank.look(dispatch)
    assert (found.state, found.worker_id, found.finished_ms) == (State.SUCCEEDED, WORKER, NOW_MS + SECOND)
    assert (found.result, found.progress, found.slots) == (b"42", b"all", ())
    assert states_through(found) == [State.PENDING, State.RUNNING, State.SUCCEEDED]


@each_kind
async def test_an_end_is_gone_with_the_transaction(caller: Caller, crank: Crank, schema: str, kind: JobSpec) -> None:
    dispatch = await fired(crank, kind)
    before = await crank.look(dispatch)
    await _abandon(caller, complete(caller, schema, report(dispatch)))
    assert await crank.look(dispatch) == before
    assert (await crank.settle(report(dispatch, Outcome.FAILED, failure=failure()))).refused == ()


@each_kind
async def test_report_after_a_completion_changes_nothing(
    caller: Caller, crank: Crank, schema: str, kind: JobSpec
) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, Outcome.STARTED))
    async with caller.transaction():
        await complete(caller, schema, report(dispatch, result=b"42"))
    before = await crank.look(dispatch)
    settled = await crank.settle(report(dispatch, result=b"another"))
    assert (settled.refused, settled.by_state, settled.entries) == ((), {}, ())
    for outcome in (Outcome.FAILED, Outcome.INTERRUPTED, Outcome.TIMED_OUT, Outcome.SNOOZED):
        await crank.settle(report(dispatch, outcome))
    assert await crank.look(dispatch) == before
    assert await crank.timeline() == []


@each_kind
async def test_a_run_that_completed_itself_is_counted_when_its_worker_reports_it_and_once(
    caller: Caller, crank: Crank, store: PostgresStore, schema: str, kind: JobSpec
) -> None:
    dispatch = await fired(crank, kind)
    reported = report(dispatch, tenant=TENANT, payload_bytes=7)
    async with caller.transaction():
        await complete(caller, schema, reported)
    assert await usage_today(store) == []
    settled = await crank.settle(reported)
    assert await usage_today(store) == [UsageTotals(1, 1, 0, SECOND, 7)] == list(settled.usage.values())
    assert (await crank.settle(reported)).usage == {}
    assert await usage_today(store) == [UsageTotals(1, 1, 0, SECOND, 7)]


@pytest.mark.parametrize(
    "policy",
    [Retention(0, 0, 0, 0, 0, 0, 0, 0), Retention(*[9 * DAY] * 8, tenants={TENANT: 0})],
    ids=["general retention", "retention of the tenant"],
)
async def test_pruned_executions_leave_no_unreported_completion(
    caller: Caller, crank: Crank, store: PostgresStore, schema: str, policy: Retention
) -> None:
    dispatch = await fired(crank)
    async with caller.transaction():
        await complete(caller, schema, report(dispatch))
    assert await store.database.value("SELECT count(*) FROM unreported") == 1
    await store.executions.prune(policy, NOW_MS + DAY, 1000)
    assert await store.database.value("SELECT count(*) FROM unreported") == 0


async def usage_today(store: PostgresStore) -> list[UsageTotals]:
    return [used for _, used in await store.workload.usage(TENANT, NOW_MS // DAY, NOW_MS // DAY)]


@each_kind
async def test_a_dispatch_that_was_superseded_cannot_complete(
    caller: Caller, crank: Crank, schema: str, kind: JobSpec
) -> None:
    dispatch = await fired(crank, kind)
    await crank.settle(report(dispatch, Outcome.INTERRUPTED))
    waits = await crank.look(dispatch)
    await _refused(caller, schema, report(dispatch), "PENDING with dispatch 2")
    await _refused(caller, schema, report(dispatch, dispatch=2), "PENDING with dispatch 2")
    assert await crank.look(dispatch) == waits
    again = await crank.fire_one()
    await _refused(caller, schema, report(dispatch), "PENDING with dispatch 2")
    async with caller.transaction():
        await complete(caller, schema, report(again))
    assert (await crank.look(dispatch)).state is State.SUCCEEDED


async def test_another_worker_cannot_complete(caller: Caller, crank: Crank, schema: str) -> None:
    dispatch = await fired(crank)
    await crank.settle(report(dispatch, Outcome.STARTED, worker_id=OTHER))
    await _refused(caller, schema, report(dispatch), f"RUNNING with dispatch 1, worker {OTHER}")


async def test_second_completion_is_refused(caller: Caller, crank: Crank, schema: str) -> None:
    dispatch = await fired(crank)
    async with caller.transaction():
        await complete(caller, schema, report(dispatch))
    await _refused(caller, schema, report(dispatch), "SUCCEEDED already")
    await _refused(caller, schema, report(dispatch, worker_id=OTHER), "SUCCEEDED already")


async def test_an_execution_of_another_database_cannot_be_completed(caller: Caller, crank: Crank, schema: str) -> None:
    dispatch = await fired(crank)
    unknown = report(dispatch, execution_id="01900000-0000-8000-8000-000000000000")
    await _refused(caller, schema, unknown, "not in this database")


async def _refused(caller: Caller, schema: str, reported: Report, why: str) -> None:
    """Check that a completion is refused, and that the caller's other writes are rolled back."""
    await caller.execute("CREATE TEMPORARY TABLE IF NOT EXISTS effects (n int)")
    with pytest.raises(Conflict, match=why):
        await _write_and_complete(caller, schema, reported)
    assert await caller.value("SELECT count(*) FROM effects") == 0


async def _write_and_complete(caller: Caller, schema: str, reported: Report) -> None:
    async with caller.transaction():
        await caller.execute("INSERT INTO effects VALUES (1)")
        await complete(caller, schema, reported)


async def test_completion_releases_the_buffered_execution(caller: Caller, crank: Crank, schema: str) -> None:
    wanted = job(every(1, overlap=Overlap.BUFFER_ALL))
    await crank.add(wanted)
    first = await crank.fire_one()
    await crank.fire(at_ms=NOW_MS + SECOND)
    async with caller.transaction():
        await complete(caller, schema, report(first))
    second = (await crank.all_of(wanted))[1]
    assert (second.state, second.buffered) == (State.PENDING, 0)
    assert second.id in [entry.key for entry in await crank.timeline()]


async def test_a_key_is_free_again(caller: Caller, crank: Crank, schema: str) -> None:
    first = await fired(crank, KEYED)
    await crank.add(job(KEYED))
    assert (await crank.fire()).dispatches == ()
    async with caller.transaction():
        await complete(caller, schema, report(first))
    assert len((await crank.fire()).dispatches) == 1


async def test_concurrent_settlement_waits_for_the_commit(
    caller: Caller, crank: Crank, store: PostgresStore, schema: str
) -> None:
    dispatch = await fired(crank)
    async with caller.transaction():
        await complete(caller, schema, report(dispatch))
        losing = asyncio.ensure_future(crank.settle(report(dispatch, Outcome.FAILED, failure=failure())))
        while not await store.database.value(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        ):
            assert not losing.done()
    assert len((await losing).refused) == 1
    assert (await crank.look(dispatch)).state is State.SUCCEEDED


# Rights


async def test_a_role_with_the_rights_that_the_page_names_may_do_both(
    caller: Caller, crank: Crank, schema: str
) -> None:
    page = blocks(DOCS / "howto" / "transactions.md", "sql")[0].text
    role = f"shop_{uuid4().hex}"
    dispatch = await fired(crank)
    await caller.execute(f"CREATE ROLE {role}")
    try:
        for grant in page.strip().replace("noonday", schema).replace("shop", role).split(";")[:-1]:
            await caller.execute(grant)
        async with caller.transaction():
            await caller.execute(f"SET LOCAL ROLE {role}")
            await complete(caller, schema, report(dispatch))
            await add(caller, schema, job())
    finally:
        await caller.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert (await crank.look(dispatch)).state is State.SUCCEEDED
    assert len(await crank.timeline()) == 1
