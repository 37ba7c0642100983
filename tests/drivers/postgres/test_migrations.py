import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions, connect
from noonday.drivers.postgres.migrations import all_migrations, checksum_of, migrate, missing_indexes, pending
from noonday.model.errors import StoreFailed, StoreUnavailable
from noonday.model.ids import PARTITIONS
from tests.drivers.postgres.own_schema import opened, own_schema
from tests.support.eventually import eventually
from tests.support.factories import NOW_MS

MANY = 4
PATIENCE_SEC = 60.0
_OBJECTS = """
SELECT 'table', c.relname::text FROM pg_class c WHERE c.relnamespace = current_schema::regnamespace
UNION ALL SELECT 'function', p.proname::text FROM pg_proc p WHERE p.pronamespace = current_schema::regnamespace
ORDER BY 1, 2
"""


@pytest.fixture
async def options() -> AsyncIterator[PostgresOptions]:
    async with own_schema() as options:
        yield options


@pytest.fixture
async def database(options: PostgresOptions) -> AsyncIterator[PostgresDatabase]:
    async with opened(options) as database:
        yield database


async def names_of(database: PostgresDatabase) -> list[str]:
    return [row[0] for row in await database.fetch("SELECT name FROM migrations ORDER BY name")]


async def objects_of(database: PostgresDatabase) -> list[tuple[str, str]]:
    return [tuple(row) for row in await database.fetch(_OBJECTS)]


async def come_from_the_future(database: PostgresDatabase) -> None:
    await database.value("INSERT INTO migrations VALUES ('9999_later.sql', 'x', now())")


async def test_a_new_schema_gets_every_migration_in_order(database: PostgresDatabase) -> None:
    applied = await migrate(database)
    assert applied
    assert applied == sorted(applied)
    assert await names_of(database) == applied


async def test_a_migrated_schema_is_left_alone(database: PostgresDatabase) -> None:
    await migrate(database)
    before = await objects_of(database)
    assert await migrate(database) == []
    assert await objects_of(database) == before


async def test_pending_migrations_are_those_that_migrate_applies(database: PostgresDatabase) -> None:
    before = await pending(database)
    assert await migrate(database) == before
    assert await pending(database) == []


async def test_a_new_schema_has_every_partition_without_an_owner(database: PostgresDatabase) -> None:
    await migrate(database)
    rows = await database.fetch("SELECT partition, epoch, owner FROM partitions ORDER BY partition")
    assert [tuple(row) for row in rows] == [(partition, 0, "") for partition in range(PARTITIONS)]


async def test_concurrent_migrations_apply_everything_once(options: PostgresOptions) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(opened(options)) for _ in range(MANY)]
        applied = await asyncio.gather(*(migrate(database) for database in databases))
        assert sorted(map(len, applied))[:-1] == [0] * (MANY - 1)
        assert await names_of(databases[0]) == max(applied, key=len)


async def test_a_schema_of_a_newer_version_is_refused(database: PostgresDatabase) -> None:
    await migrate(database)
    await come_from_the_future(database)
    with pytest.raises(StoreUnavailable, match=r"newer Noonday.*9999_later\.sql.*upgrade Noonday"):
        await migrate(database)
    with pytest.raises(StoreUnavailable, match=r"newer Noonday.*9999_later\.sql"):
        await pending(database)


async def test_a_migration_that_was_changed_after_it_had_been_applied_is_refused(database: PostgresDatabase) -> None:
    first, *_ = await migrate(database)
    await database.value("UPDATE migrations SET checksum = 'another' WHERE name = $1", first)
    with pytest.raises(StoreUnavailable, match=f"{first} was changed"):
        await migrate(database)
    with pytest.raises(StoreUnavailable, match=f"{first} was changed"):
        await pending(database)


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(database: PostgresDatabase) -> None:
    await database.value(f'CREATE SCHEMA "{database.options.schema}"')
    await database.value("CREATE TABLE executions (something_else text)")
    before = await objects_of(database)
    with pytest.raises(StoreFailed, match="already exists"):
        await migrate(database)
    assert await objects_of(database) == before


async def test_unmigrated_database_is_refused(database: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable, match="noonday migrate"):
        await database.value("SELECT count(*) FROM jobs")


# Schemas in use


FORMER = "0014_lines.sql"
"""The last migration of the release before."""


async def make_former(database: PostgresDatabase, last: str = FORMER) -> None:
    """Create a schema as an earlier release left it."""
    async with database.transaction() as session:
        await session.execute(f'CREATE SCHEMA "{database.options.schema}"')
        await session.execute(
            "CREATE TABLE migrations (name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL)"
        )
        for name, text in all_migrations().items():
            if name <= last:
                await session.execute(text)
                await session.execute("INSERT INTO migrations VALUES ($1, $2, now())", name, checksum_of(text))
        await session.execute(f"SELECT make_partitions({NOW_MS}, 3)")


async def described(database: PostgresDatabase) -> list[str]:
    """Every column, index and function, except for generated names of indexes of partitions."""
    rows = await database.fetch("""
        SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = current_schema::regnamespace AND a.attnum > 0 AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        UNION ALL
        SELECT regexp_replace(pg_get_indexdef(i.indexrelid), 'INDEX \\S+ ON (ONLY )?\\S+?\\.', 'INDEX ON ') || i.indisvalid
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = current_schema::regnamespace
        UNION ALL
        SELECT p.proname || md5(p.prosrc) FROM pg_proc p WHERE p.pronamespace = current_schema::regnamespace
        ORDER BY 1""")
    return [row[0] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("last", ["0003_callers.sql", FORMER])
async def test_an_upgraded_schema_is_the_same_as_a_new_one(database: PostgresDatabase, last: str) -> None:
    await make_former(database, last)
    expected = [name for name in all_migrations() if name > last]
    assert await pending(database) == expected
    indexes = await missing_indexes(database)
    assert "executions_turns" in indexes
    assert await migrate(database) == [*expected, *(f"index {name}" for name in indexes)]
    assert await missing_indexes(database) == []
    async with own_schema() as other, opened(other) as fresh:
        await migrate(fresh)
        await fresh.value("SELECT make_partitions($1, 3)", NOW_MS)
        assert await described(database) == await described(fresh)
    assert await migrate(database) == []


@pytest.mark.slow
async def test_concurrent_upgrades_apply_everything_once(options: PostgresOptions) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(opened(options)) for _ in range(MANY)]
        await make_former(databases[0])
        applied = await asyncio.gather(*(migrate(database) for database in databases))
        assert sorted(map(len, applied))[:-1] == [0] * (MANY - 1)


async def indexes_of_turns(database: PostgresDatabase) -> list[tuple[str, bool]]:
    rows = await database.fetch("""
        SELECT c.relname::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = current_schema::regnamespace AND c.relname ~ 'turns' ORDER BY 1""")
    return [tuple(row) for row in rows]


@pytest.mark.slow
async def test_an_upgrade_that_died_while_it_built_an_index_is_finished_by_the_next_one(
    database: PostgresDatabase, options: PostgresOptions
) -> None:
    await migrate(database)
    await database.value("SELECT make_partitions($1, 3)", NOW_MS)
    await database.value("DROP INDEX executions_turns")
    reader = await connect(replace(options, idle_in_transaction_sec=10 * PATIENCE_SEC))
    reading = reader.transaction()
    await reading.start()
    # A concurrent index build waits for every transaction that may have written to the table.
    await reader.execute("LOCK TABLE executions_default IN ROW EXCLUSIVE MODE")
    dying = asyncio.create_task(migrate(database))

    async def left_behind() -> list[str]:
        return [
            name
            for name, is_valid in await indexes_of_turns(database)
            if not is_valid and name.startswith("executions_d")
        ]

    await eventually(left_behind, PATIENCE_SEC)
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    await reading.rollback()
    await reader.close()
    finished = await migrate(database)
    assert finished == ["index executions_turns"]
    after = await indexes_of_turns(database)
    assert all(is_valid for _, is_valid in after)
    assert len(after) == 5


@pytest.mark.slow
async def test_others_go_on_while_an_upgrade_waits_for_a_lock(
    database: PostgresDatabase, options: PostgresOptions
) -> None:
    await make_former(database, "0013_endpoints.sql")
    reader = await connect(replace(options, idle_in_transaction_sec=10 * PATIENCE_SEC))
    reading = reader.transaction()
    await reading.start()
    await reader.fetch("SELECT * FROM timeline")
    upgrading = asyncio.create_task(migrate(database))

    async def waits() -> bool:
        return bool(
            await database.value(
                "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'timeline'::regclass AND NOT granted)"
            )
        )

    await eventually(waits, PATIENCE_SEC)
    # A writer has its turn as soon as the attempt is given up, long before the reader ends.
    await eventually(lambda: wrote(database), PATIENCE_SEC)
    assert not upgrading.done()
    await reading.rollback()
    await reader.close()
    assert FORMER in await upgrading


async def wrote(database: PostgresDatabase) -> bool:
    try:
        await database.value("UPDATE timeline SET lane = lane WHERE false")
    except StoreUnavailable:
        return False
    return True
