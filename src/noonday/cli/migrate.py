"""`noonday migrate`: apply pending database migrations of a cluster."""

import asyncio
from pathlib import Path

import click

from noonday.cli.asking import read_settings
from noonday.cli.group import Command
from noonday.cli.screen import done, json_option, show_json
from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.migrations import migrate as apply
from noonday.drivers.postgres.migrations import missing_indexes, pending
from noonday.wiring.cluster import postgres_options
from noonday.wiring.settings import Settings

EXAMPLES = """
Examples:
  noonday migrate                  apply pending migrations; safe to run from many processes at once
  noonday migrate --dry-run        list pending migrations
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--dry-run", is_flag=True, help="List pending migrations and change nothing.")
@json_option
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Settings file. [default: noonday.toml]",
)
def migrate(dry_run: bool, as_json: bool, config: Path | None) -> None:
    """Apply pending database migrations of a cluster.

    The cluster may run meanwhile: table locks are short, and indexes are built concurrently. If the command is
    interrupted, run it again to continue.
    """
    names = asyncio.run(_migrate(read_settings(config), dry_run))
    if as_json:
        return show_json({"pending" if dry_run else "applied": names})
    if not names:
        return done("the database is up to date")
    return done(f"{'pending' if dry_run else 'applied'}: {', '.join(names)}")


async def _migrate(settings: Settings, dry_run: bool) -> list[str]:
    database = await PostgresDatabase.open(postgres_options(settings))
    try:
        if not dry_run:
            return await apply(database)
        return [*await pending(database), *(f"index {name}" for name in await missing_indexes(database))]
    finally:
        await database.close()
