"""Authentication: from a bearer token (JWT) to a Caller.

The settings choose the algorithm, never the token, so that a public key is never used as a shared secret.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jwt

from noonday.api.jwks import KeySet, parse_key_set, read_file, read_url
from noonday.crypto.tokens import NAME_CLAIMS, check_secret
from noonday.model.caller import ALL_SCOPES, Caller
from noonday.model.errors import BadSettings, Unauthorized
from noonday.model.ids import TenantId

if TYPE_CHECKING:
    from jwt.types import Options

LEEWAY_SEC = 30
RECHECK_AFTER_SEC = 600

_LAST_INSTANT = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class Authenticator(Protocol):
    async def authenticate(self, header: str | None) -> Caller:
        """Return the caller that the `Authorization` header identifies. Raises Unauthorized with the reason."""
        ...


class TokenRules(Protocol):
    """Requirements for tokens: the `[auth]` settings."""

    @property
    def algorithm(self) -> str: ...
    @property
    def secret(self) -> str | None: ...
    @property
    def jwks_url(self) -> str | None: ...
    @property
    def jwks_file(self) -> str | None: ...
    @property
    def audience(self) -> str | None: ...
    @property
    def issuer(self) -> str | None: ...


class TokenAuthenticator:
    """Validates JWTs: signature, `exp` and `nbf` with 30 seconds of leeway, `aud` and `iss` if the rules name them.

    A valid token is remembered until it expires, for at most 10 minutes; so a signing key that is removed from the key set
    is rejected after at most 10 minutes. The constructor raises BadSettings if the rules are invalid.
    """

    def __init__(self, rules: TokenRules, now: Callable[[], float], remember: int = 4096) -> None:
        self._rules = rules
        self._now = now
        self._find_key = _key_finder(rules, now)
        self._remembered = _RememberedTokens(remember)

    async def authenticate(self, header: str | None) -> Caller:
        token = _bearer_token(header)
        digest = sha256(token.encode()).digest()
        return self._remembered.find(digest, self._now()) or await self._check(token, digest)

    async def _check(self, token: str, digest: bytes) -> Caller:
        claims = await self._signed_claims(token)
        now = self._now()
        expires_at = _check_times(claims, now)
        _check_parties(claims, self._rules)
        caller = _caller_of(claims)
        self._remembered.keep(digest, caller, min(expires_at + LEEWAY_SEC, now + RECHECK_AFTER_SEC))
        return caller

    async def _signed_claims(self, token: str) -> dict[str, Any]:
        key = await self._find_key(_key_id_in(token, self._rules.algorithm))
        try:
            return jwt.decode(token, key, algorithms=[self._rules.algorithm], options=_SIGNATURE_ONLY)
        except jwt.InvalidSignatureError as error:
            raise Unauthorized("invalid token signature: the token was altered or signed with another key") from error
        except jwt.PyJWTError as error:
            raise _malformed() from error


# This module validates times and parties itself: with the clock passed in, and with precise messages.
_SIGNATURE_ONLY: "Options" = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
    "enforce_minimum_key_length": True,
}


class _KeyFinder(Protocol):
    async def __call__(self, kid: str | None, /) -> jwt.PyJWK | str: ...


def _key_finder(rules: TokenRules, now: Callable[[], float]) -> _KeyFinder:
    if rules.algorithm == "HS256":
        return _shared_secret(rules.secret)
    if rules.algorithm not in ("RS256", "ES256"):
        raise BadSettings(f"auth.algorithm is {rules.algorithm!r}: must be HS256, RS256 or ES256")
    if rules.jwks_url is not None:
        return KeySet(partial(read_url, rules.jwks_url), rules.algorithm, now).find
    if rules.jwks_file is not None:
        path = Path(rules.jwks_file)
        # Read the file now, so that an invalid one fails startup and not the first request.
        parse_key_set(read_file(path), rules.algorithm)
        return KeySet(partial(asyncio.to_thread, read_file, path), rules.algorithm, now).find
    raise BadSettings(f"auth.algorithm {rules.algorithm} needs auth.jwks_url or auth.jwks_file")


def _shared_secret(secret: str | None) -> _KeyFinder:
    if secret is None:
        raise BadSettings("auth.algorithm HS256 needs auth.secret")
    check_secret(secret)

    async def find(_kid: str | None, /) -> str:
        return secret

    return find


def _bearer_token(header: str | None) -> str:
    if not header:
        raise Unauthorized("missing Authorization header; send: Authorization: Bearer TOKEN")
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("malformed Authorization header; send: Authorization: Bearer TOKEN")
    if not token.isascii():
        raise _malformed()
    return token


def _malformed() -> Unauthorized:
    return Unauthorized("malformed token: a JWT has three base64url parts, header.claims.signature")


def _key_id_in(token: str, algorithm: str) -> str | None:
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise _malformed() from error
    if header.get("alg") != algorithm:
        raise Unauthorized(f"unsupported token algorithm; this server accepts {algorithm} only")
    return header.get("kid")


def _check_times(claims: Mapping[str, Any], now: float) -> float:
    expires_at = _instant(claims, "exp")
    if now >= expires_at + LEEWAY_SEC:
        raise Unauthorized(f"the token expired at {_utc(expires_at)}; the server's time is {_utc(now)}")
    if "nbf" in claims and now + LEEWAY_SEC < (begins_at := _instant(claims, "nbf")):
        raise Unauthorized(f"the token is not valid before {_utc(begins_at)}; the server's time is {_utc(now)}")
    return expires_at


def _instant(claims: Mapping[str, Any], name: str) -> float:
    value = _claim(claims, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_INSTANT:
        raise Unauthorized(f"invalid token claim {name}: must be seconds since 1970")
    return value


def _utc(instant: float) -> str:
    return datetime.fromtimestamp(int(instant), UTC).isoformat().replace("+00:00", "Z")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    if name not in claims:
        raise Unauthorized(f"missing token claim {name}; required claims are sub, tenant, scope and exp")
    return claims[name]


def _check_parties(claims: Mapping[str, Any], rules: TokenRules) -> None:
    if rules.issuer is not None and _claim(claims, "iss") != rules.issuer:
        raise Unauthorized(f"invalid token issuer (iss); must be {rules.issuer}")
    if rules.audience is None:
        return
    audience = _claim(claims, "aud")
    if rules.audience not in (audience if isinstance(audience, list) else [audience]):
        raise Unauthorized(f"invalid token audience (aud); must be {rules.audience}")


def _caller_of(claims: Mapping[str, Any]) -> Caller:
    names = {name: _claim(claims, name) for name in NAME_CLAIMS}
    for name, (is_valid, rule) in NAME_CLAIMS.items():
        if not isinstance(names[name], str) or not is_valid(names[name]):
            raise Unauthorized(f"invalid token claim {name}: must be {rule}")
    return Caller(TenantId(names["tenant"]), names["sub"], _scopes(_claim(claims, "scope")))


def _scopes(value: Any) -> frozenset[str]:
    """Return the known scopes. Others are ignored: an identity provider may add its own, such as `openid`."""
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Unauthorized("invalid token claim scope: must be words separated by spaces, or a list of words")
    return frozenset(ALL_SCOPES).intersection(words)


class _RememberedTokens:
    """Callers by the hash of their token. The least recently used are evicted first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    def find(self, digest: bytes, now: float) -> Caller | None:
        known = self._known.get(digest)
        if known is None:
            return None
        caller, good_until = known
        if now >= good_until:
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return caller

    def keep(self, digest: bytes, caller: Caller, good_until: float) -> None:
        self._known[digest] = (caller, good_until)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
