"""Encryption keys of the server of this machine."""

from pathlib import Path

from noonday.crypto.keyring import Keyring, load_or_create, new_env_value, rotate
from noonday.model.errors import BadSettings, NotFound
from noonday.wiring.settings import Settings


def keyring_of(settings: Settings) -> Keyring:
    """Return the keys in use. Creates none; raises NotFound if there are none."""
    if settings.encryption.keys:
        return Keyring.from_env_value(settings.encryption.keys)
    return load_or_create(_key_file(settings))


def add_key(settings: Settings) -> str:
    """Add a key to the key file. Returns its id; raises BadSettings if the keys are not in a file."""
    if settings.encryption.keys:
        raise BadSettings("the keys come from NOONDAY_KEYS: put a new key first in it, and keep the others")
    return rotate(_key_file(settings))


def new_keys() -> str:
    """Return a new value for NOONDAY_KEYS."""
    return new_env_value()


def _key_file(settings: Settings) -> Path:
    path = Path(f"{settings.data}.keys")
    if not path.exists():
        raise NotFound(f"the key file {path} does not exist: name the server's data file with --data")
    return path
