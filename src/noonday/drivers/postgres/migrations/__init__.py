"""Apply numbered migrations, each once, to a database that is in use. A migration is never edited once landed.

An empty schema gets all migrations in one transaction. In any other schema, each migration has its own transaction, which waits
for a lock only briefly and is then tried again, because a session that waits for a table blocks all sessions behind it. These
transactions build no indexes. After them, every index that a migration names and the schema lacks is built CONCURRENTLY. An
index that was not finished is invalid: it is dropped and built again. So `migrate` may die at any point and be run again.

Rules for new migrations (expand, then contract). Processes of the former release keep running during a migration and after it, so
a migration adds and removes nothing that they use. A column has no computed default. A function keeps its arguments. The release
after the last one that uses an object drops it. No migration may depend on an index that it creates itself.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from noonday.drivers.postgres.connection import PostgresDatabase, Session, connect, translated
from noonday.model.errors import StoreUnavailable

_LOCK = 4_771_262_218_590_113
"""Key of the advisory lock under which one process migrates. The others wait, and find the work done."""
LOCK_SEC = 1.0
"""Seconds for which one attempt waits for a lock."""
TRIES = 120
PAUSE_SEC = 0.5
"""Seconds between two attempts, in which blocked sessions continue."""
_MAX_BUILD_SEC = 86_400.0
"""Seconds that building an index of a large table may take."""
_INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX (\w+) ON (\w+)([^;]*);\n?", re.MULTILINE)
_NO_INDEX = re.compile(r"^DROP INDEX (?:IF EXISTS )?(\w+);", re.MULTILINE)


@dataclass(frozen=True)
class Index:
    name: str
    table: str
    is_unique: bool
    rest: str
    """Columns and condition."""

    def statement(self, name: str, table: str, how: str = "") -> str:
        return f'CREATE {"UNIQUE " if self.is_unique else ""}INDEX {how} "{name}" ON {table}{self.rest}'


async def migrate(database: PostgresDatabase) -> list[str]:
    """Bring the schema up to date while it is in use. Returns the migrations that were applied and the indexes that were built.

    Raises StoreUnavailable if a lock is not granted. Finished migrations and indexes stay, and the next run does the rest.
    """
    with translated():
        session = await connect(database.options)
        try:
            async with _migration_lock(session):
                return await _migrate(session, database.options.schema)
        finally:
            await session.close()


async def pending(database: PostgresDatabase) -> list[str]:
    """Return the migrations that `migrate` would apply. Without them, this release cannot work."""
    return list(_not_applied(await _known(database)))


async def missing_indexes(database: PostgresDatabase) -> list[str]:
    """Return the indexes that `migrate` would build. Without them, this release works, but is slow."""
    if not await _known(database):
        return []
    async with database.session() as session:
        return [index.name for index in all_indexes() if not await _is_valid(session, index.name)]


def all_migrations() -> dict[str, str]:
    paths = sorted((p for p in files(__name__).iterdir() if p.name.endswith(".sql")), key=lambda path: path.name)
    return {path.name: path.read_text("utf-8") for path in paths}


def all_indexes() -> list[Index]:
    """Return the indexes that exist after all migrations."""
    indexes: dict[str, Index] = {}
    for text in all_migrations().values():
        for name in _NO_INDEX.findall(text):
            indexes.pop(name, None)
        for unique, name, table, rest in _INDEX.findall(text):
            indexes[name] = Index(name, table, bool(unique), rest)
    return list(indexes.values())


def checksum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _known(database: PostgresDatabase) -> dict[str, str]:
    if await database.value("SELECT to_regclass('migrations')") is None:
        return {}
    return dict(await database.fetch("SELECT name, checksum FROM migrations"))


def _not_applied(known: dict[str, str]) -> dict[str, str]:
    migrations = all_migrations()
    for name, checksum in known.items():
        if name not in migrations:
            raise StoreUnavailable(f"this database was used by a newer Noonday (it has {name}): upgrade Noonday")
        if checksum_of(migrations[name]) != checksum:
            raise StoreUnavailable(f"migration {name} was changed after it had been applied to this database")
    return {name: text for name, text in migrations.items() if name not in known}


@asynccontextmanager
async def _migration_lock(session: Session) -> AsyncIterator[None]:
    """Poll for the advisory lock under which one process migrates.

    A session that waited inside a statement would have a snapshot, and an index that is being built waits for old snapshots.
    """
    await session.execute("SET statement_timeout = 0")
    deadline = asyncio.get_running_loop().time() + _MAX_BUILD_SEC
    while not await session.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
        if asyncio.get_running_loop().time() > deadline:
            raise StoreUnavailable(
                "another process has been migrating this database for a day; find its session in pg_stat_activity"
            )
        await asyncio.sleep(PAUSE_SEC)
    try:
        yield
    finally:
        if not session.is_closed():
            await session.execute("SELECT pg_advisory_unlock($1)", _LOCK)


async def _migrate(session: Session, schema: str) -> list[str]:
    if await session.fetchval("SELECT to_regclass('migrations')") is None or not await session.fetchval(
        "SELECT EXISTS (SELECT 1 FROM migrations)"
    ):
        return await _create(session, schema)
    done = []
    for name, text in _not_applied(dict(await session.fetch("SELECT name, checksum FROM migrations"))).items():
        await _execute_with_retries(
            session, name, _INDEX.sub("", text), "INSERT INTO migrations VALUES ($1, $2, now())", checksum_of(text)
        )
        done.append(name)
    return done + [f"index {index.name}" for index in all_indexes() if await _build(session, index)]


async def _create(session: Session, schema: str) -> list[str]:
    """Apply all migrations in one transaction, because an empty schema is not in use."""
    migrations = all_migrations()
    async with session.transaction():
        await session.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await session.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL)"
        )
        for name, text in migrations.items():
            await session.execute(text)
            await session.execute("INSERT INTO migrations VALUES ($1, $2, now())", name, checksum_of(text))
    return list(migrations)


async def _execute_with_retries(session: Session, name: str, text: str, note: str = "", checksum: str = "") -> None:
    """Run statements in a transaction that waits for a lock only briefly, and try again."""
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_SEC)
        try:
            async with session.transaction():
                # In one call, because without its indexes the text of a migration may be empty.
                settings = f"SET LOCAL lock_timeout = {round(LOCK_SEC * 1000)};\n"
                await session.execute(settings + text, timeout=_MAX_BUILD_SEC)
                if note:
                    await session.execute(note, name, checksum)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            continue
        return
    raise StoreUnavailable(
        f"{name} gave up after {TRIES} attempts to lock a table; end the long transactions in pg_stat_activity, and run "
        "`noonday migrate` again"
    )


async def _build(session: Session, index: Index) -> bool:
    """Build an index unless it exists and is valid. Returns whether it was built."""
    if await _is_valid(session, index.name):
        return False
    if await session.fetchval("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1)", index.table):
        await _build_of_partitions(session, index)
    else:
        await _build_concurrently(session, index.name, index, index.table)
    return True


async def _build_concurrently(session: Session, name: str, index: Index, table: str) -> None:
    """Build an index without blocking other sessions, however long it takes.

    It deadlocks with a release that waits for the advisory lock inside a transaction. Then the server ends one of the two.
    """
    await session.execute("SET lock_timeout = 0")
    for _ in range(TRIES):
        try:
            await session.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"', timeout=_MAX_BUILD_SEC)
            await session.execute(index.statement(name, f'"{table}"', "CONCURRENTLY"), timeout=_MAX_BUILD_SEC)
        except asyncpg.DeadlockDetectedError:
            await asyncio.sleep(PAUSE_SEC)
        else:
            return
    raise StoreUnavailable(f"index {name} gave up after {TRIES} deadlocks; run `noonday migrate` again")


async def _build_of_partitions(session: Session, index: Index) -> None:
    """Build an index of a partitioned table through its partitions, because it cannot be built concurrently itself.

    The indexes of the partitions are built concurrently and then attached. The parent's index becomes valid with the last one. A
    partition that is created meanwhile has the index from the beginning.
    """
    if await session.fetchval("SELECT to_regclass($1)", index.name) is None:
        await _execute_with_retries(session, index.name, index.statement(index.name, f'ONLY "{index.table}"'))
    for (partition,) in await session.fetch(_PARTITIONS_WITHOUT, index.table, index.name):
        part = f"{partition}_{index.name.removeprefix(index.table + '_')}"[:63]
        if not await _is_valid(session, part):
            await _build_concurrently(session, part, index, partition)
        await _execute_with_retries(session, part, f'ALTER INDEX "{index.name}" ATTACH PARTITION "{part}"')


async def _is_valid(session: Session, name: str) -> bool:
    return bool(await session.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name))


_PARTITIONS_WITHOUT = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass($1) AND NOT EXISTS (
    SELECT 1 FROM pg_inherits j JOIN pg_index x ON x.indexrelid = j.inhrelid
    WHERE j.inhparent = to_regclass($2) AND x.indrelid = c.oid)
ORDER BY c.relname
"""
