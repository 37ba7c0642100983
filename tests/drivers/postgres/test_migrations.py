import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from noonday.drivers.postgres.connection import Database, PostgresOptions
from noonday.drivers.postgres.migrations import migrate, pending
from noonday.model.errors import StoreFailed, StoreUnavailable
from noonday.model.ids import PARTITIONS
from tests.drivers.postgres.own_schema import opened, own_schema

MANY = 4
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
async def database(options: PostgresOptions) -> AsyncIterator[Database]:
    async with opened(options) as database:
        yield database


async def names_of(database: Database) -> list[str]:
    return [row[0] for row in await database.fetch("SELECT name FROM migrations ORDER BY name")]


async def objects_of(database: Database) -> list[tuple[str, str]]:
    return [tuple(row) for row in await database.fetch(_OBJECTS)]


async def come_from_the_future(database: Database) -> None:
    await database.value("INSERT INTO migrations VALUES ('9999_later.sql', 'x', now())")


async def test_a_new_schema_gets_every_migration_in_order(database: Database) -> None:
    applied = await migrate(database)
    assert applied
    assert applied == sorted(applied)
    assert await names_of(database) == applied


async def test_a_migrated_schema_is_left_alone(database: Database) -> None:
    await migrate(database)
    before = await objects_of(database)
    assert await migrate(database) == []
    assert await objects_of(database) == before


async def test_what_is_pending_is_what_would_be_applied(database: Database) -> None:
    before = await pending(database)
    assert await migrate(database) == before
    assert await pending(database) == []


async def test_a_new_schema_has_every_partition_without_an_owner(database: Database) -> None:
    await migrate(database)
    rows = await database.fetch("SELECT partition, epoch, owner FROM partitions ORDER BY partition")
    assert [tuple(row) for row in rows] == [(partition, 0, "") for partition in range(PARTITIONS)]


async def test_many_who_migrate_at_once_apply_everything_once(options: PostgresOptions) -> None:
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(opened(options)) for _ in range(MANY)]
        applied = await asyncio.gather(*(migrate(database) for database in databases))
        assert sorted(map(len, applied))[:-1] == [0] * (MANY - 1)
        assert await names_of(databases[0]) == max(applied, key=len)


async def test_a_schema_of_a_newer_version_is_refused(database: Database) -> None:
    await migrate(database)
    await come_from_the_future(database)
    with pytest.raises(StoreUnavailable, match=r"newer Noonday.*9999_later\.sql.*upgrade Noonday"):
        await migrate(database)
    with pytest.raises(StoreUnavailable, match=r"newer Noonday.*9999_later\.sql"):
        await pending(database)


async def test_a_migration_that_was_changed_after_it_had_been_applied_is_refused(database: Database) -> None:
    first, *_ = await migrate(database)
    await database.value("UPDATE migrations SET checksum = 'another' WHERE name = $1", first)
    with pytest.raises(StoreUnavailable, match=f"{first} was changed"):
        await migrate(database)
    with pytest.raises(StoreUnavailable, match=f"{first} was changed"):
        await pending(database)


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(database: Database) -> None:
    await database.value(f'CREATE SCHEMA "{database.options.schema}"')
    await database.value("CREATE TABLE executions (something_else text)")
    before = await objects_of(database)
    with pytest.raises(StoreFailed, match="already exists"):
        await migrate(database)
    assert await objects_of(database) == before


async def test_a_database_that_was_not_migrated_says_so(database: Database) -> None:
    with pytest.raises(StoreUnavailable, match="noonday migrate"):
        await database.value("SELECT count(*) FROM jobs")
