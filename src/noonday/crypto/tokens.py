"""Tokens and proofs that the shared secret of a server signs (HS256), and the file that keeps the secret.

A command on the server's own machine creates its token here, so the module needs the standard library and msgspec only.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import msgspec

from noonday.crypto.private_file import read_or_create_private
from noonday.model.caller import ALL_SCOPES, TENANT_RULE, is_tenant_name
from noonday.model.errors import BadSettings, InvalidInput, nearest

SECRET_BYTES = 32
LONGEST_TTL_SEC = 100 * 366 * 86_400
_HEADER = {"alg": "HS256", "typ": "JWT"}
_ASYMMETRIC_KEY = re.compile(r"----[- ]BEGIN [A-Z0-9 ]+[- ]----|\A(ssh-(ed25519|rsa|dss)|ecdsa-sha2-nistp)")


def mint(
    secret: str,
    *,
    tenant: str,
    subject: str,
    scopes: Sequence[str],
    ttl_seconds: int,
    now: float,
    audience: str | None = None,
    issuer: str | None = None,
) -> str:
    """Return a token signed with the shared secret (HS256), valid from `now`. Raises InvalidInput."""
    check_secret(secret)
    _check_claims(tenant, subject, scopes, ttl_seconds)
    claims: dict[str, Any] = {
        "sub": subject,
        "tenant": tenant,
        "scope": " ".join(scope for scope in ALL_SCOPES if scope in scopes),
        "iat": int(now),
        "exp": int(now) + ttl_seconds,
    }
    parties = {"aud": audience, "iss": issuer}
    return _signed(claims | {name: value for name, value in parties.items() if value}, secret)


def proof_of(secret: str, nonce: str, port: int) -> str:
    """Return the proof for a nonce, which only a server with this secret on this port can compute.

    Its key differs from the key of tokens, so that no nonce makes the server sign a token. The proof covers the port, so that
    a program on another port cannot relay the challenge.
    """
    key = hmac.digest(secret.encode(), b"noonday: proof of the server", "sha256")
    return hmac.digest(key, f"{port}:{nonce}".encode(), "sha256").hex()


def secret_file(data: str) -> Path:
    """Return the path of the secret of the server with this data file."""
    return Path(f"{data}.secret")


def load_or_create_secret(path: Path) -> str:
    """Return the secret in the file; create the file with a random secret if it is missing. Raises BadSettings."""
    secret = read_or_create_private(path, lambda: token_urlsafe(SECRET_BYTES) + "\n").strip()
    check_secret(secret, f"the secret in {path}")
    return secret


def check_secret(secret: str, name: str = "auth.secret") -> None:
    """Raise BadSettings if the secret is short, or if it is a key of an asymmetric algorithm, which may be public."""
    size = len(secret.encode())
    if size < SECRET_BYTES:
        raise BadSettings(
            f"{name} has {size} bytes; HS256 needs at least {SECRET_BYTES}. Generate one with: openssl rand -base64 32"
        )
    if _ASYMMETRIC_KEY.search(secret):
        raise BadSettings(f"{name} is a public or private key, not a secret: use RS256 or ES256 with a JWKS")


def _is_subject(text: str) -> bool:
    return 0 < len(text) <= 255 and text.isprintable()


NAME_CLAIMS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "tenant": (is_tenant_name, TENANT_RULE),
    "sub": (_is_subject, "1 to 255 printable characters"),
}
"""Check and rule of each claim that is a name."""


def _check_claims(tenant: str, subject: str, scopes: Sequence[str], ttl_seconds: int) -> None:
    for pointer, claim, name in (("/tenant", "tenant", tenant), ("/subject", "sub", subject)):
        is_valid, rule = NAME_CLAIMS[claim]
        if not is_valid(name):
            raise InvalidInput.of(pointer, f"must be {rule}", name)
    for index, scope in enumerate(scopes):
        if scope not in ALL_SCOPES:
            raise InvalidInput.of(
                f"/scopes/{index}", "unknown scope", scope, allowed=list(ALL_SCOPES), nearest=nearest(scope, ALL_SCOPES)
            )
    if not 0 < ttl_seconds <= LONGEST_TTL_SEC:
        raise InvalidInput.of("/ttlSeconds", f"must be from 1 to {LONGEST_TTL_SEC}", ttl_seconds)


def _signed(claims: Mapping[str, Any], secret: str) -> str:
    signed = b".".join(_base64url(msgspec.json.encode(part)) for part in (_HEADER, claims))
    return b".".join((signed, _base64url(hmac.digest(secret.encode(), signed, "sha256")))).decode()


def _base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
