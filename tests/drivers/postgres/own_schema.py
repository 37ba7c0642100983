"""A schema of a single test, deleted afterwards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from tests.support.servers_up import postgres_url


@asynccontextmanager
async def own_schema() -> AsyncIterator[PostgresOptions]:
    """The URL of a schema that does not exist yet."""
    options = PostgresOptions(postgres_url(), schema=f"test_own_{uuid4().hex}", sessions=4)
    try:
        yield options
    finally:
        async with opened(options) as database:
            await database.value(f'DROP SCHEMA IF EXISTS "{options.schema}" CASCADE')


@asynccontextmanager
async def opened(options: PostgresOptions) -> AsyncIterator[PostgresDatabase]:
    database = await PostgresDatabase.open(options)
    try:
        yield database
    finally:
        await database.close()
