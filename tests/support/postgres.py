"""A separate schema for each test process, emptied before each test."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from noonday.drivers.postgres.connection import PostgresDatabase, PostgresOptions
from noonday.drivers.postgres.migrations import migrate
from noonday.drivers.postgres.store import PostgresStore, open_store
from tests.support.servers_up import postgres_url

_KEPT = {"migrations", "partitions"}
_EMPTY = """
SELECT string_agg(format('DELETE FROM %I', c.relname), '; ')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> ALL ($1)
"""
_prepared: set[str] = set()


@asynccontextmanager
async def postgres_store(lead_ms: int) -> AsyncIterator[PostgresStore]:
    options = PostgresOptions(postgres_url(), schema=f"test_{os.getpid()}", sessions=4)
    if options.schema not in _prepared:
        await _prepare(options)
        _prepared.add(options.schema)
    store = await open_store(options, lead_ms, own_clock=False)
    try:
        await _empty(store.database)
        yield store
    finally:
        await store.close()


async def _prepare(options: PostgresOptions) -> None:
    database = await PostgresDatabase.open(options)
    try:
        for (schema,) in await database.fetch("SELECT nspname FROM pg_namespace WHERE nspname ~ '^test_[0-9]+$'"):
            if not _is_alive(int(schema.removeprefix("test_"))) or schema == options.schema:
                await database.value(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await migrate(database)
    finally:
        await database.close()


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def _empty(database: PostgresDatabase) -> None:
    everything = await database.value(_EMPTY, list(_KEPT))
    async with database.session() as session:
        await session.execute(f"{everything}; UPDATE partitions SET epoch = 0, owner = ''")
