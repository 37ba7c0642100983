"""`noonday migrate`: apply pending database migrations of a cluster."""

import asyncio
from pathlib import Path

import click

from noonday.cli.client import config_option
from noonday.cli.group import Command
from noonday.cli.needs import needs
from noonday.cli.screen import done, json_option, show_json
from noonday.extras import Extra

EXAMPLES = """
Examples:
  noonday migrate                  apply pending migrations; safe to run from many processes at once
  noonday migrate --dry-run        list pending migrations
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--dry-run", is_flag=True, help="List pending migrations and change nothing.")
@json_option
@config_option
@needs(Extra.CLUSTER)
def migrate(dry_run: bool, as_json: bool, config: Path | None) -> None:
    """Apply pending database migrations of a cluster.

    The cluster may run meanwhile: table locks are short, and indexes are built concurrently. If the command is
    interrupted, run it again to continue.
    """
    from noonday.cli.server.local import read_settings
    from noonday.cli.server.migrate import migrate_database

    names = asyncio.run(migrate_database(read_settings(config), dry_run=dry_run))
    if as_json:
        return show_json({"pending" if dry_run else "applied": names})
    if not names:
        return done("the database is up to date")
    return done(f"{'pending' if dry_run else 'applied'}: {', '.join(names)}")
