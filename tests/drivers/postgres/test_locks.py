"""Locks: no circular waits, and no fire waits at all."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions, connect
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.postgres.store import PostgresStore, open_store
from noonday.drivers.postgres.transactional import PostgresCompletions
from noonday.intake import edits, triggers
from noonday.model.batch import FireRequest
from noonday.model.change import Change, NewJob
from noonday.model.errors import Conflict, NotFound, StoreUnavailable
from noonday.model.execution import OPEN, Outcome
from noonday.model.job import Concurrency, Job, Overlap
from noonday.model.message import Dispatch
from noonday.model.recording import Checkpoint
from noonday.model.retention import Retention
from noonday.model.snapshot import Snapshot
from noonday.model.view import PoolSettings
from tests.drivers.postgres.own_schema import opened, own_schema
from tests.support.crank import Crank, first_fire
from tests.support.drivers import LEAD_MS
from tests.support.eventually import eventually
from tests.support.factories import (
    DAY,
    HOUR,
    MINUTE,
    NOW_MS,
    POOL,
    SECOND,
    TENANT,
    audit,
    every,
    failure,
    hello,
    job,
    report,
    spec,
)
from tests.support.servers_up import postgres_url

ROUNDS = 25
PATIENCE_SEC = 30.0
EVERYBODY = 8


@pytest.fixture
async def options() -> AsyncIterator[PostgresOptions]:
    async with own_schema() as options:
        async with opened(options) as database:
            await migrate(database)
        yield dataclasses.replace(
            options, sessions=6, name=options.schema[-40:], idle_in_transaction_sec=10 * PATIENCE_SEC
        )


@pytest.fixture
async def store(options: PostgresOptions) -> AsyncIterator[PostgresStore]:
    store = await open_store(options, LEAD_MS, own_clock=False)
    yield store
    await store.close()


@pytest.fixture
async def crank(store: PostgresStore) -> Crank:
    crank = Crank(store)
    await crank.own()
    return crank


@asynccontextmanager
async def own_database() -> AsyncIterator[PostgresOptions]:
    """A database that no other test uses, so that its counters are ours."""
    name = f"test_locks_{uuid4().hex}"
    admin = await asyncpg.connect(postgres_url())
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        try:
            url = urlsplit(postgres_url())._replace(path=f"/{name}").geturl()
            yield PostgresOptions(url, sessions=2 * EVERYBODY)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


# Lock order


class ConcurrentUsers:
    """Concurrent users of the same few jobs of a capped pool."""

    def __init__(self, store: PostgresStore, crank: Crank, jobs: list[Job]) -> None:
        self.store = store
        self.crank = crank
        self.jobs = jobs
        self.random = random.Random(4)
        self.out: list[Dispatch] = []
        self.backfilled = 0
        self.unavailable = 0

    async def fire(self) -> None:
        entries = await self.store.firing.walk(range(256), None, NOW_MS + DAY, 200)
        fired = await self.store.firing.fire(self.crank.owner, await self.crank.plan(entries), NOW_MS + DAY)
        self.out += fired.dispatches

    async def settle(self, partition: int, offset: int) -> None:
        """Settle dispatches in random order, some as failures."""
        self.random.shuffle(self.out)
        batch, self.out = self.out[:60], self.out[60:]
        outcomes = [Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.INTERRUPTED, Outcome.STARTED]
        reports = [report(each, self.random.choice(outcomes), failure=failure()) for each in batch]
        was = Checkpoint(partition, "generation", offset, 0) if offset else None
        now = Checkpoint(partition, "generation", offset + 1, 0)
        await self.store.executions.settle(reports, [hello(f"w-{offset}")], was=was, now=now, now_ms=NOW_MS + DAY)

    async def edit(self) -> None:
        one = self.random.choice(self.jobs)
        how = self.random.choice([self._replace, self._pause, self._resume])
        await self.store.jobs.edit(TENANT, one.id, how)

    def _replace(self, before: Snapshot) -> Change:
        return edits.replace(before, before.job.spec, None, NOW_MS + DAY, None)

    def _pause(self, before: Snapshot) -> Change:
        return edits.pause(before, NOW_MS + DAY, audit())

    def _resume(self, before: Snapshot) -> Change:
        return edits.resume(before, NOW_MS + DAY, audit())

    async def cancel(self) -> None:
        one = self.random.choice(self.jobs)
        rows = await self.store.query_store.list_executions(TENANT, one.id, state=None, after=None, limit=100)
        open_ = [row.id for row in rows if row.state in OPEN]
        if open_:
            wanted = self.random.choice(open_)
            await self.store.jobs.edit(
                TENANT, one.id, lambda before: edits.cancel_execution(before, wanted, "no", audit()), show=[wanted]
            )

    async def backfill(self) -> None:
        self.backfilled += 1
        name, one = str(self.backfilled), self.random.choice(self.jobs)
        times = [NOW_MS - DAY + n * MINUTE for n in range(30)]
        await self.store.jobs.edit(TENANT, one.id, lambda before: edits.backfill(before, times, name, NOW_MS, audit()))

    async def cap(self) -> None:
        cap = self.random.choice([None, 5, 50])
        await self.store.settings_store.put_pool(POOL, PoolSettings(max_running=cap), audit())

    async def upsert(self) -> None:
        """Upsert the same keys in random order."""
        wanted = [NewJob(job(each.spec), first_fire(each, NOW_MS)) for each in self.jobs]
        self.random.shuffle(wanted)
        await self.store.jobs.add(wanted, upsert=lambda before, _: Change(job=before.job), audit=None, seal=None)

    async def again_and_again(self, work: Callable[[], Awaitable[None]]) -> None:
        for _ in range(ROUNDS):
            try:
                await work()
            except (Conflict, NotFound):
                continue
            except StoreUnavailable:
                self.unavailable += 1

    async def record(self, partition: int) -> None:
        offset = 0
        for _ in range(ROUNDS):
            with suppress(StoreUnavailable):
                await self.settle(partition, offset)
                offset += 1


@pytest.mark.slow
async def test_busy_jobs_are_fired_settled_edited_and_backfilled_without_a_deadlock() -> None:
    async with own_database() as options:
        async with opened(options) as database:
            await migrate(database)
        store = await open_store(options, LEAD_MS, own_clock=False)
        try:
            crank = Crank(store)
            await crank.own()
            jobs = [
                job(every(60, unique_key="plain")),
                job(every(60, unique_key="skip", overlap=Overlap.SKIP)),
                job(every(60, unique_key="buffer", overlap=Overlap.BUFFER_ALL)),
                job(every(60, unique_key="key", concurrency=Concurrency("db", 3))),
            ]
            await crank.add(*jobs)
            users = ConcurrentUsers(store, crank, jobs)
            works = [
                users.fire,
                users.fire,
                users.edit,
                users.cancel,
                users.backfill,
                users.backfill,
                users.cap,
                users.upsert,
            ]
            await asyncio.gather(
                *(users.again_and_again(work) for work in works), users.record(0), users.record(1), users.record(2)
            )
            assert await deadlocks(store.database) == 0
        finally:
            await store.close()


async def deadlocks(database: PostgresDatabase) -> int:
    await database.value("SELECT pg_stat_force_next_flush()")
    await database.value("SELECT pg_stat_clear_snapshot()")
    count: int = await database.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return count


# Fires do not wait


async def everything_due(crank: Crank) -> list[FireRequest]:
    return await crank.plan(await crank.due())


@asynccontextmanager
async def completing(options: PostgresOptions, dispatch: Dispatch) -> AsyncIterator[None]:
    """An application whose transaction has completed an execution, and is not committed yet."""
    session = await connect(options)
    transaction = session.transaction()
    await transaction.start()
    try:
        await PostgresCompletions(options.schema).complete(session, report(dispatch), NOW_MS + SECOND)
        yield
        await transaction.commit()
    finally:
        await session.close()


async def test_one_shots_are_fired_while_an_application_keeps_its_transaction_open(
    crank: Crank, options: PostgresOptions
) -> None:
    held = job(every(overlap=Overlap.BUFFER_ALL, concurrency=Concurrency("db", 5)))
    await crank.add(held)
    dispatch = await crank.fire_one()
    others = [job(now_ms=NOW_MS + MINUTE) for _ in range(3)]
    keyed = job(spec(concurrency=Concurrency("db", 5)), now_ms=NOW_MS + MINUTE)
    beside = job(every(overlap=Overlap.SKIP), now_ms=NOW_MS + MINUTE)
    await crank.add(*others, keyed, beside)
    crank.now_ms = NOW_MS + MINUTE
    async with completing(options, dispatch):
        fired = await crank.fire()
        assert {each.job_id for each in fired.dispatches} == {*(each.id for each in others), beside.id}
        assert {entry.key for entry in fired.entries if entry.due_ms <= crank.now_ms} == {held.id, keyed.id}
        assert fired.refused == 0
    again = await crank.fire()
    assert {each.job_id for each in again.dispatches} == {held.id, keyed.id}


async def test_locked_counter_of_a_capped_pool_delays_no_other_entry(
    crank: Crank, store: PostgresStore, options: PostgresOptions
) -> None:
    await store.settings_store.put_pool("capped", PoolSettings(max_running=10), audit())
    in_pool = spec(target=type(spec().target)("capped", "load"))
    await crank.add(job(in_pool))
    dispatch = await crank.fire_one()
    capped, planned, free = job(in_pool), job(every(target=in_pool.target)), job()
    await crank.add(capped, planned, free)
    async with completing(options, dispatch):
        fired = await crank.fire()
        assert [each.job_id for each in fired.dispatches] == [free.id]
        assert {entry.key for entry in fired.entries} == {capped.id, planned.id}
    again = await crank.fire()
    assert {each.job_id for each in again.dispatches} == {capped.id, planned.id}


async def test_committed_fires_are_returned_although_the_rest_fails(
    crank: Crank, store: PostgresStore, options: PostgresOptions
) -> None:
    plain, planned = job(), job(every())
    await crank.add(plain, planned)
    requests = await everything_due(crank)
    await store.database.value("ALTER FUNCTION fire_decided RENAME TO fire_decided_away")
    await store.database.value(
        "CREATE FUNCTION fire_decided(text, bigint[], bigint, bigint, jsonb) RETURNS bigint LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE lock_not_available; END $$"
    )
    fired = await store.firing.fire(crank.owner, requests, crank.now_ms)
    assert [each.job_id for each in fired.dispatches] == [plain.id]
    assert [entry.key for entry in fired.entries] == [planned.id]
    with pytest.raises(StoreUnavailable):
        await store.firing.fire(crank.owner, await everything_due(crank), crank.now_ms)


# Retention


ADD_EXECUTION = """
INSERT INTO executions (id, job_id, tenant, nominal_ms, due_ms, state, attempt, dispatch, revision, cause, pool, handler, lane,
                        watch, created_ms, transitions)
VALUES ($1, $2, 'acme', $3, $3, 0, 1, 1, 1, 1, 'etl', 'load', 1, 0, $3, '')
"""


def _leave(before: Snapshot, wanted: Job) -> Change:
    return Change()


def keep(ms: int) -> Retention:
    names = {field for field in Retention.__struct_fields__ if field.endswith("_ms")}
    return Retention(**dict.fromkeys(names, ms))


async def somebody_waits(options: PostgresOptions, task: "asyncio.Task[Any]") -> bool:
    """Whether a session of this test waits for a lock, or the task that would wait is done."""
    async with opened(options) as database:
        waiting = (
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock')"
        )
        return task.done() or bool(await database.value(waiting, options.name))


async def test_table_partition_with_a_concurrent_writer_is_not_dropped(
    store: PostgresStore, options: PostgresOptions
) -> None:
    old_ms = NOW_MS - 10 * DAY
    await store.database.value("SELECT make_partitions($1, 1)", old_ms)
    writer, dropper = await connect(options), await connect(options)
    try:
        writing = writer.transaction()
        await writing.start()
        one = job(every())
        await Crank(store).add(one)
        await writer.execute(ADD_EXECUTION, triggers.id_of_trigger(one.id, "k", old_ms), one.id, old_ms)
        dropping = asyncio.create_task(dropper.fetchval("SELECT drop_partitions($1)", NOW_MS))

        await eventually(lambda: somebody_waits(options, dropping), PATIENCE_SEC)
        await writing.commit()
        with suppress(asyncpg.LockNotAvailableError):
            assert await dropping == 0
        assert await store.database.value("SELECT count(*) FROM executions WHERE job_id = $1", one.id) == 1
    finally:
        await writer.close()
        await dropper.close()


async def test_an_empty_partition_is_dropped(store: PostgresStore) -> None:
    await store.database.value("SELECT make_partitions($1, 1)", NOW_MS - 10 * DAY)
    assert await store.database.value("SELECT drop_partitions($1)", NOW_MS) == 1
    assert await store.database.value("SELECT drop_partitions($1)", NOW_MS) == 0


async def test_a_job_that_is_triggered_while_it_is_pruned_stays(store: PostgresStore, options: PostgresOptions) -> None:
    one = job(every(max_runs=1), now_ms=NOW_MS - DAY)
    await store.jobs.add([NewJob(one, None)], upsert=_leave, audit=None, seal=None)
    session = await connect(options)
    try:
        triggering = session.transaction()
        await triggering.start()
        await session.execute("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", one.id)
        # The job looks completed, and a transaction is about to trigger it.
        pruning = asyncio.create_task(store.executions.prune(keep(HOUR), NOW_MS, 100))
        await eventually(lambda: somebody_waits(options, pruning), PATIENCE_SEC)
        await session.execute(ADD_EXECUTION, triggers.id_of_trigger(one.id, "k", NOW_MS), one.id, NOW_MS)
        await triggering.commit()
        await pruning
    finally:
        await session.close()
    assert await store.query_store.find_job(TENANT, one.id) is not None
    assert len(await Crank(store).all_of(one)) == 1


async def test_completed_job_without_a_lock_is_pruned(store: PostgresStore) -> None:
    one = job(now_ms=NOW_MS - DAY)
    await store.jobs.add([NewJob(one, None)], upsert=_leave, audit=None, seal=None)
    await store.executions.prune(keep(HOUR), NOW_MS, 100)
    assert await store.query_store.find_job(TENANT, one.id) is None
