"""Public signing keys from the JWKS of an identity provider, refreshed when keys rotate."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import jwt
import msgspec
import structlog

from noonday.model.errors import BadSettings, Unauthorized

REFRESH_AT_MOST_EVERY_SEC = 30.0
RETRY_AFTER_SEC = 5.0
KEYS_LIVE_SEC = 600.0
FETCH_TIMEOUT_SEC = 5.0

_log = structlog.get_logger(__name__)


class KeySet:
    """Finds keys by `kid`. Reads the JWKS when a token names an unknown key, and when its copy is 10 minutes old.

    The JWKS is read at most every 30 seconds (5 seconds after a failure), by one caller while others wait. If reading fails,
    the old copy stays in use.
    """

    def __init__(self, read: Callable[[], Awaitable[bytes]], algorithm: str, now: Callable[[], float]) -> None:
        self._read = read
        self._algorithm = algorithm
        self._now = now
        self._keys: Sequence[jwt.PyJWK] = ()
        self._failed = False
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._refreshing = asyncio.Lock()

    async def find(self, kid: str | None) -> jwt.PyJWK:
        """Return the key with this id, or the only key if `kid` is None. Raises Unauthorized if there is none."""
        if self._wants_reading(kid) and not (self._refreshing.locked() and self._pick(kid)):
            async with self._refreshing:
                if self._wants_reading(kid):
                    await self._refresh()
        key = self._pick(kid)
        if key is None:
            raise self._unknown(kid)
        return key

    def _wants_reading(self, kid: str | None) -> bool:
        pause = RETRY_AFTER_SEC if self._failed else REFRESH_AT_MOST_EVERY_SEC
        if self._is_within(pause, self._tried_at):
            return False
        return self._pick(kid) is None or not self._is_within(KEYS_LIVE_SEC, self._read_at)

    def _is_within(self, seconds: float, since: float) -> bool:
        # The lower bound keeps a clock that was set back from blocking refreshes until it catches up.
        return 0 <= self._now() - since < seconds

    async def _refresh(self) -> None:
        try:
            self._keys = parse_key_set(await self._read(), self._algorithm)
            self._read_at = self._now()
            self._failed = False
        except BadSettings as error:
            # Logged only: the response must not disclose internal addresses.
            _log.warning("key set unreadable", detail=error.detail)
            self._failed = True
        finally:
            self._tried_at = self._now()

    def _pick(self, kid: str | None) -> jwt.PyJWK | None:
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == kid), None)

    def _unknown(self, kid: str | None) -> Unauthorized:
        if self._failed:
            return Unauthorized("cannot validate the token: the server failed to read the signing keys; retry later")
        if kid is None:
            return Unauthorized(f"the token names no signing key (kid), and the server has {len(self._keys)}")
        return Unauthorized("the token names an unknown signing key (kid)")


def parse_key_set(document: bytes, algorithm: str) -> list[jwt.PyJWK]:
    """Return the keys of a JWKS that `algorithm` can use. Raises BadSettings if there are none."""
    try:
        content = msgspec.json.decode(document, type=_Document)
    except msgspec.DecodeError as error:
        raise BadSettings(f'the key set is not a JWKS: {error}; expected {{"keys": [...]}}') from error
    keys = [key for entry in content.keys if (key := _usable_key(entry, algorithm)) is not None]
    if not keys:
        raise BadSettings(f"the key set has no public key for {algorithm} (of {len(content.keys)} keys)")
    return keys


async def read_url(url: str) -> bytes:
    # Imported here: the import takes half a second, and most servers have no key set.
    import aiohttp

    limit = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_SEC)
    try:
        async with aiohttp.ClientSession(timeout=limit, trust_env=True) as session, session.get(url) as answer:
            answer.raise_for_status()
            return await answer.read()
    except (aiohttp.ClientError, OSError) as error:
        raise BadSettings(f"cannot read the key set at {url}: {str(error) or type(error).__name__}") from error


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSettings(f"cannot read the key set {path}: {error.strerror}", path=str(path)) from error


class _Document(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


_SHAPES = {"RS256": ("RSA", None), "ES256": ("EC", "P-256")}


def _usable_key(entry: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    kind = (entry.get("kty"), entry.get("crv"))
    if kind != _SHAPES[algorithm] or entry.get("alg", algorithm) != algorithm or entry.get("use", "sig") != "sig":
        return None
    if "d" in entry:
        return None
    try:
        key = jwt.PyJWK(entry, algorithm)
    except (jwt.PyJWTError, KeyError, TypeError, ValueError):
        return None
    return None if key.Algorithm.check_key_length(key.key) else key
