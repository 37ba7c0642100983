"""Numbered migrations, applied once each and never edited once landed. Safe to run from many processes at once."""

import hashlib
from importlib.resources import files

from noonday.drivers.postgres.connection import Database, Session
from noonday.model.errors import StoreUnavailable

_LOCK = 4_771_262_218_590_113
"""Of all who migrate at the same time, one does it and the others find it done."""


_PATIENCE_SEC = 3_600.0


async def migrate(database: Database) -> list[str]:
    """Bring the schema up to date in one transaction. Answers the names that were applied."""
    async with database.transaction() as session:
        # The others wait here for as long as it takes.
        await session.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
        await session.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=_PATIENCE_SEC)
        await session.execute(f'CREATE SCHEMA IF NOT EXISTS "{database.options.schema}"')
        await session.execute(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL)"
        )
        known = dict(await session.fetch("SELECT name, checksum FROM migrations"))
        return [name for name, text in _wanted(known).items() if await _apply(session, name, text)]


async def pending(database: Database) -> list[str]:
    """What `migrate` would apply."""
    if await database.value("SELECT to_regclass('migrations')") is None:
        return list(_all())
    return list(_wanted(dict(await database.fetch("SELECT name, checksum FROM migrations"))))


def _wanted(known: dict[str, str]) -> dict[str, str]:
    migrations = _all()
    for name, checksum in known.items():
        if name not in migrations:
            raise StoreUnavailable(f"this database was used by a newer Noonday (it has {name}): upgrade Noonday")
        if _checksum(migrations[name]) != checksum:
            raise StoreUnavailable(f"migration {name} was changed after it had been applied to this database")
    return {name: text for name, text in migrations.items() if name not in known}


async def _apply(session: Session, name: str, text: str) -> bool:
    await session.execute(text)
    await session.execute("INSERT INTO migrations VALUES ($1, $2, now())", name, _checksum(text))
    return True


def _all() -> dict[str, str]:
    paths = sorted((p for p in files(__name__).iterdir() if p.name.endswith(".sql")), key=lambda path: path.name)
    return {path.name: path.read_text("utf-8") for path in paths}


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
