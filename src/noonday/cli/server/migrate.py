"""Database migrations of a cluster."""

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import migrate as apply
from noonday.drivers.postgres.migrations import missing_indexes, pending
from noonday.wiring.cluster.servers import postgres_options
from noonday.wiring.settings import Settings


async def migrate_database(settings: Settings, *, dry_run: bool) -> list[str]:
    """Apply pending migrations, or only list them. Returns their names."""
    database = await PostgresDatabase.open(postgres_options(settings))
    try:
        if not dry_run:
            return await apply(database)
        return [*await pending(database), *(f"index {name}" for name in await missing_indexes(database))]
    finally:
        await database.close()
