"""Keys that encrypt payloads, progress and results at rest.

The current key seals; every key opens what it sealed. Rotating adds a key and makes it current. A key may be removed from the
file once nothing that it sealed is left. Nonces are random, so a key should seal no more than 2^32 values: at a steady 1,000
values a second, rotate every month.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_bytes, token_hex

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noonday.crypto.envelope import NONCE_BYTES, head_of, key_id_of, new_nonce, read_head
from noonday.crypto.private_file import change_private, read_or_create_private
from noonday.model.errors import BadKey, BadSettings

KEY_BYTES = 32

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


class Keyring:
    """AES-256-GCM keys by id. Immutable, so any thread may use it."""

    __slots__ = ("_ciphers", "_encrypt", "_head", "_keys", "current", "key_ids")

    def __init__(self, current: str, keys: Mapping[str, bytes]) -> None:
        self.current = current
        self.key_ids = tuple(keys)
        self._keys = dict(keys)
        self._ciphers = {head_of(key_id): AESGCM(key) for key_id, key in keys.items()}
        self._head = head_of(current)
        self._encrypt = self._ciphers[self._head].encrypt

    @classmethod
    def generate(cls) -> "Keyring":
        """Make a keyring with one new key that is not stored: the values that it seals are lost with the process."""
        key_id = _new_key_id()
        return cls(key_id, {key_id: token_bytes(KEY_BYTES)})

    @classmethod
    def from_env_value(cls, text: str) -> "Keyring":
        """Read `id:base64,id:base64`. The first key is current. Raises BadSettings, which never quotes a key."""
        pairs = [entry.strip().partition(":") for entry in text.split(",") if entry.strip()]
        if not pairs:
            raise BadSettings(f"{_ENV_SOURCE}: no key found; expected id:base64,id:base64")
        keys = _read_keys(((key_id.strip(), key.strip()) for key_id, _, key in pairs), _ENV_SOURCE)
        return cls(pairs[0][0].strip(), keys)

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt with the current key, bound to `context`."""
        nonce = new_nonce()
        return self._head + nonce + self._encrypt(nonce, plain, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt an envelope. Raises BadKey if its key is missing, a byte was altered, or the context differs."""
        head = read_head(sealed)
        cipher = self._ciphers.get(head)
        if cipher is None:
            raise self._key_missing(sealed)
        start = len(head)
        body = start + NONCE_BYTES
        try:
            return cipher.decrypt(sealed[start:body], sealed[body:], context)
        except (InvalidTag, ValueError) as error:
            raise _not_opened(sealed) from error

    def derive(self, purpose: bytes) -> dict[str, bytes]:
        """Return a secret derived from each key for another purpose, by key id. It reveals nothing about the key."""
        return {
            key_id: HKDF(SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(key)
            for key_id, key in self._keys.items()
        }

    def __repr__(self) -> str:
        return f"Keyring(current={self.current!r}, key_ids={self.key_ids!r})"

    def _key_missing(self, sealed: bytes) -> BadKey:
        key_id = key_id_of(sealed)
        return BadKey(
            f"sealed with key {key_id!r}, which is not in the keyring (it has {', '.join(self.key_ids)})",
            key_id=key_id,
        )


def new_env_value() -> str:
    """Return a new key in the format that `Keyring.from_env_value` reads."""
    return f"{_new_key_id()}:{b64encode(token_bytes(KEY_BYTES)).decode()}"


def load_or_create(path: Path) -> Keyring:
    """Load the keyring from a file. If there is no file, create one with a new key. Raises BadSettings."""
    return _keyring_of(_decode(read_or_create_private(path, _first_content), path), path)


def rotate(path: Path) -> str:
    """Add a new key to the file, make it current and return its id. Processes use it once they load the file again."""
    key_id = _new_key_id()

    def with_new_key(text: str) -> str:
        content = _decode(text, path)
        _keyring_of(content, path)
        return _encode(_KeyFile(current=key_id, keys={**content.keys, key_id: _new_key()}))

    change_private(path, with_new_key)
    return key_id


class _KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    current: str
    keys: dict[str, str]


_ENV_SOURCE = "the encryption keys (NOONDAY_KEYS)"


def _not_opened(sealed: bytes) -> BadKey:
    key_id = key_id_of(sealed)
    return BadKey(
        f"key {key_id!r} does not open the envelope: it was altered, was sealed for another tenant or job, "
        "or another key with this id sealed it",
        key_id=key_id,
    )


def _first_content() -> str:
    key_id = _new_key_id()
    return _encode(_KeyFile(current=key_id, keys={key_id: _new_key()}))


def _new_key_id() -> str:
    # Random, not a counter: the keys of two installations are then never confused.
    return f"k{token_hex(4)}"


def _new_key() -> str:
    return b64encode(token_bytes(KEY_BYTES)).decode()


def _encode(content: _KeyFile) -> str:
    return msgspec.json.format(msgspec.json.encode(content)).decode() + "\n"


def _decode(text: str, path: Path) -> _KeyFile:
    try:
        return msgspec.json.decode(text, type=_KeyFile)
    except msgspec.DecodeError as error:
        raise BadSettings(
            f'key file {path}: {error}; expected {{"current": id, "keys": {{id: base64}}}}', path=str(path)
        ) from error


def _keyring_of(content: _KeyFile, path: Path) -> Keyring:
    source = f"key file {path}"
    keys = _read_keys(content.keys.items(), source)
    if content.current not in keys:
        raise BadSettings(
            f"{source}: current is {content.current!r}, but the keys are {', '.join(keys) or 'none'}", path=str(path)
        )
    return Keyring(content.current, keys)


def _read_keys(pairs: Iterable[tuple[str, str]], source: str) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for position, (key_id, text) in enumerate(pairs, start=1):
        # The id is quoted only if it is valid: a key pasted without an id must not appear in a message.
        if not _KEY_ID.fullmatch(key_id) or not text:
            raise BadSettings(f"{source}: entry {position} is not id:base64 (id: up to 32 letters, digits, - and _)")
        if key_id in keys:
            raise BadSettings(f"{source}: key {key_id!r} is given twice")
        keys[key_id] = _read_key(key_id, text, source)
    return keys


def _read_key(key_id: str, text: str, source: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except ValueError as error:
        raise BadSettings(f"{source}: key {key_id!r} is not base64") from error
    if len(key) != KEY_BYTES:
        raise BadSettings(
            f"{source}: key {key_id!r} has {len(key)} bytes, AES-256 needs {KEY_BYTES}; "
            f"make one with: openssl rand -base64 {KEY_BYTES}"
        )
    return key
