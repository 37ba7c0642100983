"""`noonday keys`: encryption keys of payloads, progress and results."""

from pathlib import Path

import click
from rich.text import Text

from noonday.cli.asking import read_settings, settings_options
from noonday.cli.group import Group
from noonday.cli.screen import done, json_option, show, show_json
from noonday.cli.tables import ListTable
from noonday.crypto.keyring import Keyring, load_or_create, new_env_value
from noonday.crypto.keyring import rotate as add_key
from noonday.model.errors import BadSettings, NotFound
from noonday.wiring.settings import Settings

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
def list_(as_json: bool, data: str | None, config: Path | None) -> None:
    """List the key ids, never the keys."""
    settings = read_settings(config, data=data)
    ring = keyring_of(settings)
    if as_json:
        return show_json({"current": ring.current, "keys": ring.key_ids})
    grid = ListTable("KEY", "USE")
    for key_id in ring.key_ids:
        current = key_id == ring.current
        grid.add(key_id, Text("encrypts and decrypts", "green") if current else "decrypts older data")
    return show(grid)


@keys.command()
@settings_options
def rotate(data: str | None, config: Path | None) -> None:
    """Add a key that encrypts all new data. Older keys still decrypt older data."""
    settings = read_settings(config, data=data)
    if settings.encryption.keys:
        raise BadSettings("the keys come from NOONDAY_KEYS: put a new key first in it, and keep the others")
    done(f"added key {add_key(key_file(settings))}; it takes effect when `noonday up` starts again")


@keys.command()
def new() -> None:
    """Print a new key for NOONDAY_KEYS, which every process of a cluster needs. The key is not stored."""
    click.echo(new_env_value())


def keyring_of(settings: Settings) -> Keyring:
    """Return the keys in use. Creates none; raises NotFound if there are none."""
    if settings.encryption.keys:
        return Keyring.from_env_value(settings.encryption.keys)
    return load_or_create(key_file(settings))


def key_file(settings: Settings) -> Path:
    path = Path(f"{settings.data}.keys")
    if not path.exists():
        raise NotFound(f"the key file {path} does not exist: name the server's data file with --data")
    return path
