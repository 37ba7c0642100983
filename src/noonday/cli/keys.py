"""`noonday keys`: encryption keys of payloads, progress and results."""

from pathlib import Path

import click
from rich.text import Text

from noonday.cli.client import settings_options
from noonday.cli.group import Group
from noonday.cli.needs import needs
from noonday.cli.screen import done, json_option, show, show_json
from noonday.cli.tables import ListTable
from noonday.extras import Extra

EXAMPLES = """
The keys are in NOONDAY_KEYS, or else in FILE.keys next to the data file. Keep a copy: data cannot be decrypted if its
key is lost.

Examples:
  noonday keys list
  export NOONDAY_KEYS=$(noonday keys new)
  noonday keys rotate --data /var/lib/noonday/noonday.db
"""


@click.group(cls=Group, epilog=EXAMPLES)
def keys() -> None:
    """Manage encryption keys."""


@keys.command("list")
@json_option
@settings_options
@needs(Extra.SERVER)
def list_(as_json: bool, data: str | None, config: Path | None) -> None:
    """List the key ids, never the keys."""
    from noonday.cli.server.keys import keyring_of
    from noonday.cli.server.local import read_settings

    ring = keyring_of(read_settings(config, data=data))
    if as_json:
        return show_json({"current": ring.current, "keys": ring.key_ids})
    grid = ListTable("KEY", "USE")
    for key_id in ring.key_ids:
        current = key_id == ring.current
        grid.add(key_id, Text("encrypts and decrypts", "green") if current else "decrypts older data")
    return show(grid)


@keys.command()
@settings_options
@needs(Extra.SERVER)
def rotate(data: str | None, config: Path | None) -> None:
    """Add a key that encrypts all new data. Older keys still decrypt older data."""
    from noonday.cli.server.keys import add_key
    from noonday.cli.server.local import read_settings

    key_id = add_key(read_settings(config, data=data))
    done(f"added key {key_id}; it takes effect when `noonday up` starts again")


@keys.command()
@needs(Extra.SERVER)
def new() -> None:
    """Print a new key for NOONDAY_KEYS, which every process of a cluster needs. The key is not stored."""
    from noonday.cli.server.keys import new_keys

    click.echo(new_keys())
