"""An application that creates jobs in its own transactions, with no engine in its process."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from noonday import Context, Noonday
from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring, new_env_value
from noonday.drivers.memory.hot_index import MemoryHotIndex
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.listener import TimelineListener, channel_of
from noonday.drivers.postgres.migrations import migrate
from noonday.model.errors import BadSettings, Conflict, InvalidInput, PayloadTooLarge, QuotaExceeded
from noonday.model.ids import PARTITIONS, TenantId
from noonday.wiring.engine_queries import OWNER
from tests.drivers.postgres.own_schema import opened, own_schema
from tests.support.callers import CALLERS, Caller
from tests.support.eventually import eventually

KEYS = new_env_value()


async def ship(ctx: Context, order: int) -> None: ...


@pytest.fixture
def app() -> Noonday:
    app = Noonday()
    app.handler("ship", pool="shop")(ship)
    return app


@pytest.fixture
async def database() -> AsyncIterator[PostgresDatabase]:
    async with own_schema() as options, opened(options) as database:
        await migrate(database)
        await database.value("INSERT INTO pools VALUES ('shop', '{}')")
        yield database


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, database: PostgresDatabase) -> None:
    monkeypatch.setenv("NOONDAY_POSTGRES_SCHEMA", database.options.schema)
    monkeypatch.setenv("NOONDAY_KEYS", KEYS)


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    async with CALLERS[request.param]() as caller:
        yield caller


async def test_a_job_commits_with_the_writes_of_its_caller(
    app: Noonday, caller: Caller, database: PostgresDatabase
) -> None:
    await caller.execute("CREATE TEMPORARY TABLE orders (n int)")
    async with caller.transaction():
        await caller.execute("INSERT INTO orders VALUES (7)")
        job = await app.enqueue(ship, 7, delay=60, connection=caller.connection)
        assert await database.value("SELECT count(*) FROM jobs") == 0
    tenant, payload = await database.row("SELECT tenant, payload FROM jobs WHERE id = $1", job.job_id)
    plain = Keyring.from_env_value(KEYS).open(payload, context_of(tenant, job.job_id))
    assert (tenant, msgspec.json.decode(plain), job.payload) == (OWNER.tenant, 7, 7)
    assert await database.value("SELECT count(*) FROM timeline WHERE key = $1", job.job_id) == 1
    assert await caller.value("SELECT n FROM orders") == 7


async def test_many_jobs_commit_together(app: Noonday, caller: Caller, database: PostgresDatabase) -> None:
    async with caller.transaction():
        ids = await app.enqueue_many([app.spec_for(ship, n) for n in range(250)], connection=caller.connection)
    found = await database.fetch("SELECT id::text FROM jobs ORDER BY id")
    assert [row[0] for row in found] == sorted(ids)


async def test_invalid_job_is_refused_and_the_transaction_goes_on(
    app: Noonday, caller: Caller, database: PostgresDatabase
) -> None:
    async with caller.transaction():
        with pytest.raises(InvalidInput, match="no pool shp"):
            await app.enqueue("ship", 1, pool="shp", connection=caller.connection)
        with pytest.raises(PayloadTooLarge):
            await app.enqueue("other", "x" * 300_000, pool="shop", connection=caller.connection)
        await app.enqueue(ship, 1, unique_key="one", connection=caller.connection)
        with pytest.raises(Conflict, match="unique key taken: 'one'"):
            await app.enqueue(ship, 2, unique_key="one", connection=caller.connection)
    assert await database.value("SELECT count(*) FROM jobs") == 1


async def test_settings_of_the_tenant_apply_in_a_transaction_too(
    app: Noonday, caller: Caller, database: PostgresDatabase
) -> None:
    settings = '{"maxJobs": 2, "maxPayloadBytes": 10, "defaultSpreadSec": 60}'
    await database.value("INSERT INTO tenants VALUES ($1, $2, 0)", OWNER.tenant, settings)
    async with caller.transaction():
        with pytest.raises(PayloadTooLarge, match="maxPayloadBytes"):
            await app.enqueue("other", "x" * 10, pool="shop", connection=caller.connection)
        nightly = await app.enqueue(ship, 1, cron="0 0 * * *", connection=caller.connection)
        assert nightly.spread_sec == 60
        with pytest.raises(QuotaExceeded) as caught:
            await app.enqueue_many([app.spec_for(ship, n) for n in range(2)], connection=caller.connection)
        assert (caught.value.used, caught.value.requested, caught.value.retry_after_sec) == (1, 2, 3_600)
        await app.enqueue(ship, 2, delay=60, connection=caller.connection)
        with pytest.raises(QuotaExceeded) as caught:
            await app.enqueue(ship, 3, connection=caller.connection)
        assert 1 < caught.value.retry_after_sec <= 60
    assert await database.value("SELECT count(*) FROM jobs") == 2


async def test_handler_without_a_worker_is_reported(app: Noonday, caller: Caller) -> None:
    async with caller.transaction():
        job = await app.enqueue(ship, 1, connection=caller.connection)
    assert "no worker has registered handler 'ship'" in job.warnings[0]


async def test_an_embedded_engine_has_no_part_in_a_transaction(app: Noonday, caller: Caller) -> None:
    async with app.embedded(":memory:"), caller.transaction():
        with pytest.raises(Conflict, match="needs a cluster"):
            await app.enqueue(ship, 1, connection=caller.connection)


async def test_without_keys_nothing_is_created(app: Noonday, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOONDAY_KEYS")
    async with caller.transaction():
        with pytest.raises(BadSettings, match="NOONDAY_KEYS"):
            await app.enqueue(ship, 1, connection=caller.connection)


@pytest.fixture
async def index() -> MemoryHotIndex:
    index = MemoryHotIndex(lead_ms=0)
    await index.claim(0, range(PARTITIONS), {}, 1)
    return index


async def listening(listener: TimelineListener, database: PostgresDatabase) -> "asyncio.Task[int]":
    """A round in progress that receives notifications."""
    task = asyncio.create_task(listener.run_once(0))
    channel = channel_of(database.options.schema)
    look = f"SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'LISTEN%{channel}%'"
    await eventually(lambda: database.value(look))
    return task


async def test_schedulers_are_notified_of_a_job_at_its_commit(
    app: Noonday, caller: Caller, database: PostgresDatabase, index: MemoryHotIndex
) -> None:
    listener = TimelineListener(database.options, index, lambda: range(PARTITIONS))
    try:
        task = await listening(listener, database)
        async with caller.transaction():
            lost = await app.enqueue(ship, 1, connection=caller.connection)
            await caller.execute("SAVEPOINT before")
            await app.enqueue(ship, 2, connection=caller.connection)
            await caller.execute("ROLLBACK TO SAVEPOINT before")
            assert not task.done()
        assert await task == 1
        (entry,) = await index.claim(2**60, range(PARTITIONS), {"shop": 9}, 9)
        assert (entry.key, entry.tenant) == (lost.job_id, TenantId("default"))
        (stored,) = await database.fetch("SELECT due_ms, number, partition, early, recurring FROM timeline")
        assert tuple(stored) == (entry.due_ms, entry.number, entry.partition, entry.early, entry.recurring)
    finally:
        await listener.close()


async def test_scheduler_ignores_hints_of_other_owners_and_invalid_ones(
    app: Noonday, caller: Caller, database: PostgresDatabase, index: MemoryHotIndex
) -> None:
    listener = TimelineListener(database.options, index, list)
    try:
        task = await listening(listener, database)
        await database.value("SELECT pg_notify($1, 'nonsense')", channel_of(database.options.schema))
        assert await task == 0
        task = asyncio.create_task(listener.run_once(0))
        async with caller.transaction():
            await app.enqueue(ship, 1, connection=caller.connection)
        assert await task == 0
    finally:
        await listener.close()


async def test_a_listener_whose_session_ended_listens_again(
    app: Noonday, caller: Caller, database: PostgresDatabase, index: MemoryHotIndex
) -> None:
    listener = TimelineListener(database.options, index, lambda: range(PARTITIONS))
    try:
        task = await listening(listener, database)
        channel = channel_of(database.options.schema)
        await database.value(
            f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%{channel}%'"
        )
        assert await task == 0
        task = await listening(listener, database)
        async with caller.transaction():
            await app.enqueue(ship, 1, connection=caller.connection)
        assert await task == 1
    finally:
        await listener.close()
