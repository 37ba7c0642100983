"""`noonday keys`: what payloads, progress and results are encrypted with."""

from pathlib import Path

import click
from rich.text import Text

from noonday.cli.asking import read_settings, settings_options
from noonday.cli.group import Group
from noonday.cli.screen import done, json_option, show, show_json
from noonday.cli.tables import Listing
from noonday.crypto.keyring import Keyring, load_or_create, new_env_value
from noonday.crypto.keyring import rotate as add_key
from noonday.model.errors import BadSettings, NotFound
from noonday.wiring.settings import Settings

EXAMPLES = """
Keys are in FILE.keys beside the data file, unless NOONDAY_KEYS has them. Keep a copy: what was encrypted with a key
that is lost cannot be read again.

Examples:
  noonday keys list
  export NOONDAY_KEYS=$(noonday keys new)
  noonday keys rotate --data /var/lib/noonday/noonday.db
"""


@click.group(cls=Group, epilog=EXAMPLES)
def keys() -> None:
    """What payloads, progress and results are encrypted with."""


@keys.command("list")
@json_option
@settings_options
def list_(as_json: bool, data: str | None, config: Path | None) -> None:
    """List the ids of the keys; never the keys."""
    settings = read_settings(config, data=data)
    ring = keyring_of(settings)
    if as_json:
        return show_json({"current": ring.current, "keys": ring.key_ids})
    grid = Listing("KEY", "USE")
    for key_id in ring.key_ids:
        current = key_id == ring.current
        grid.add(key_id, Text("encrypts and decrypts", "green") if current else "decrypts what it encrypted")
    return show(grid)


@keys.command()
@settings_options
def rotate(data: str | None, config: Path | None) -> None:
    """Add a key, with which everything new is encrypted. The others still decrypt what they encrypted."""
    settings = read_settings(config, data=data)
    if settings.encryption.keys:
        raise BadSettings("the keys come from NOONDAY_KEYS: put a new one in front there, and keep the others")
    done(f"new key {add_key(key_file(settings))}: it is used from the next start of `noonday up` on")


@keys.command()
def new() -> None:
    """Make a key for NOONDAY_KEYS, which every process of a cluster must have. Kept nowhere."""
    click.echo(new_env_value())


def keyring_of(settings: Settings) -> Keyring:
    """The keys in use. Raises NotFound if there are none yet, and makes none."""
    if settings.encryption.keys:
        return Keyring.from_env_value(settings.encryption.keys)
    return load_or_create(key_file(settings))


def key_file(settings: Settings) -> Path:
    path = Path(f"{settings.data}.keys")
    if not path.exists():
        raise NotFound(f"there are no keys at {path}: name the data file with --data")
    return path
