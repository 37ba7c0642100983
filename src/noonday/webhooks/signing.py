"""Standard Webhooks 1.0 signatures: sign and verify.

The signed text is the message id, a full stop, the time of the attempt in seconds, a full stop, and the raw body. The prefix of
a secret selects the algorithm: `whsec_` is a shared secret for HMAC-SHA256 (`v1`), `whsk_` a private ed25519 key (`v1a`), and
`whpk_` its public key. During a rotation both the old and the new secret sign.
"""

import base64
import binascii
import hmac
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from noonday.model.errors import InvalidInput, Unauthorized

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
TOLERANCE_SEC = 300

SHARED, PRIVATE, PUBLIC = "whsec_", "whsk_", "whpk_"
NEW_SECRET_BYTES = 32
LEAST_SECRET_BYTES, MOST_SECRET_BYTES = 24, 64
MOST_SIGNATURES = 32
"""Maximum number of signatures of one message, because each may cost a verification before the sender is authenticated."""

_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key pair: Noonday keeps the private key, receivers get the public key."""

    private: str
    public: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


def new_secret() -> str:
    """Create a shared secret: `whsec_` and 32 random bytes in base64."""
    return SHARED + _text(os.urandom(NEW_SECRET_BYTES))


def new_key_pair() -> KeyPair:
    """Create an ed25519 key pair. The private key contains seed and public key, as is usual."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    return KeyPair(PRIVATE + _text(key.private_bytes_raw() + public), PUBLIC + _text(public))


def public_key_of(private: str) -> str:
    """Return the `whpk_` key of a `whsk_` key. Raises InvalidInput if `private` is not such a key."""
    if not private.startswith(PRIVATE):
        raise _invalid_secret(f"a private key must begin with {PRIVATE}")
    return PUBLIC + _text(_private_key(private).public_key().public_bytes_raw())


def sign(secrets: Sequence[str], message_id: str, at_sec: int, body: bytes) -> dict[str, str]:
    """Return the three signature headers of one attempt, with one signature for each secret, in order.

    `message_id` is the same for every attempt of a message, `at_sec` is the time of this attempt, and `body` is exactly the
    body sent. Raises InvalidInput if a secret cannot sign, if there is no secret, or if the id contains a full stop, which
    would make signed texts ambiguous.
    """
    if not secrets:
        raise InvalidInput.of("/secrets", "must have at least one secret")
    if not _MESSAGE_ID.fullmatch(message_id):
        detail = "must be 1 to 256 visible ASCII characters without a full stop"
        raise InvalidInput.of("/message_id", detail, message_id[:256])
    if at_sec < 0:
        raise InvalidInput.of("/at_sec", "must be seconds since 1970", at_sec)
    signed = _signed_text(message_id, str(at_sec), body)
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(at_sec),
        SIGNATURE_HEADER: " ".join(_signer(secret).sign(signed) for secret in secrets),
    }


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now_sec: float,
    tolerance_sec: float = TOLERANCE_SEC,
) -> str:
    """Verify that one of `secrets` signed a message, and return its id. A receiver remembers ids to detect duplicates.

    `secrets` may be shared secrets, public keys and private keys. Header names are case-insensitive. Raises Unauthorized
    with the reason if a header is missing or malformed, if the attempt was made more than `tolerance_sec` before or after
    `now_sec`, or if no signature matches; InvalidInput if an entry of `secrets` is not a secret. Signatures are compared in
    constant time.
    """
    checkers = [_checker(secret) for secret in secrets]
    by_name = {name.lower(): value for name, value in headers.items()}
    message_id, at = _header(by_name, ID_HEADER, _MESSAGE_ID), _header(by_name, TIMESTAMP_HEADER, _SECONDS)
    _check_time(int(at), now_sec, tolerance_sec)
    signatures = _signatures(by_name)
    signed = _signed_text(message_id, at, body)
    if not any(checker.accepts(signed, signatures.get(checker.version, [])) for checker in checkers):
        raise Unauthorized("no signature matches a known secret")
    return message_id


def _signed_text(message_id: str, at: str, body: bytes) -> bytes:
    return f"{message_id}.{at}.".encode() + body


def _header(headers: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    value = headers.get(name)
    if value is None:
        raise Unauthorized(f"the header {name} is missing")
    if not form.fullmatch(value):
        raise Unauthorized(f"the header {name} is malformed")
    return value


def _check_time(at_sec: int, now_sec: float, tolerance_sec: float) -> None:
    if abs(now_sec - at_sec) > tolerance_sec:
        side = "before" if at_sec < now_sec else "after"
        raise Unauthorized(f"the attempt was made more than {tolerance_sec:g} s {side} now")


def _signatures(headers: Mapping[str, str]) -> dict[str, list[bytes]]:
    """Parse the signatures, by version. Unreadable ones are ignored, because newer senders may add versions."""
    header = headers.get(SIGNATURE_HEADER)
    if header is None:
        raise Unauthorized(f"the header {SIGNATURE_HEADER} is missing")
    texts = header.split()
    if len(texts) > MOST_SIGNATURES:
        raise Unauthorized(f"the header {SIGNATURE_HEADER} has more than {MOST_SIGNATURES} signatures")
    found: dict[str, list[bytes]] = {}
    for text in texts:
        version, _, encoded = text.partition(",")
        if (signature := _bytes(encoded)) is not None:
            found.setdefault(version, []).append(signature)
    return found


class _Signer(ABC):
    version: str

    @abstractmethod
    def mac(self, signed: bytes) -> bytes: ...

    def sign(self, signed: bytes) -> str:
        return f"{self.version},{_text(self.mac(signed))}"


class _Checker(ABC):
    version: str

    @abstractmethod
    def accepts(self, signed: bytes, signatures: Sequence[bytes]) -> bool: ...


class _Shared(_Signer, _Checker):
    version = "v1"

    def __init__(self, key: bytes) -> None:
        self._key = key

    def mac(self, signed: bytes) -> bytes:
        # `hmac.digest` releases the interpreter lock, which costs more than the digest itself in a busy process.
        return hmac.new(self._key, signed, "sha256").digest()

    def accepts(self, signed: bytes, signatures: Sequence[bytes]) -> bool:
        expected = self.mac(signed)
        return any(hmac.compare_digest(expected, signature) for signature in signatures)


class _Private(_Signer):
    version = "v1a"

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def mac(self, signed: bytes) -> bytes:
        return self._key.sign(signed)


class _Public(_Checker):
    version = "v1a"

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    def accepts(self, signed: bytes, signatures: Sequence[bytes]) -> bool:
        return any(self._matches(signature, signed) for signature in signatures)

    def _matches(self, signature: bytes, signed: bytes) -> bool:
        try:
            self._key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


@lru_cache(1024)
def _signer(secret: str) -> _Signer:
    if secret.startswith(SHARED):
        return _Shared(_shared_key(secret))
    if secret.startswith(PRIVATE):
        return _Private(_private_key(secret))
    raise _invalid_secret(f"a signing secret must begin with {SHARED} or {PRIVATE}")


def _checker(secret: str) -> _Checker:
    if secret.startswith(SHARED):
        return _Shared(_shared_key(secret))
    if secret.startswith(PUBLIC):
        return _Public(_public_key(secret))
    if secret.startswith(PRIVATE):
        return _Public(_private_key(secret).public_key())
    raise _invalid_secret(f"a secret must begin with {SHARED}, {PUBLIC} or {PRIVATE}")


def _shared_key(secret: str) -> bytes:
    key = _bytes(secret.removeprefix(SHARED))
    if key is None or not LEAST_SECRET_BYTES <= len(key) <= MOST_SECRET_BYTES:
        raise _invalid_secret(
            f"{SHARED} must be followed by {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes in base64"
        )
    return key


def _private_key(secret: str) -> Ed25519PrivateKey:
    raw = _bytes(secret.removeprefix(PRIVATE))
    if raw is None or len(raw) not in (32, 64):
        raise _invalid_secret(f"{PRIVATE} must be followed by 32 bytes in base64, or 64 with the public key")
    key = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if raw[32:] and key.public_key().public_bytes_raw() != raw[32:]:
        raise _invalid_secret("the embedded public key does not match the private key")
    return key


def _public_key(secret: str) -> Ed25519PublicKey:
    raw = _bytes(secret.removeprefix(PUBLIC))
    if raw is None or len(raw) != 32:
        raise _invalid_secret(f"{PUBLIC} must be followed by 32 bytes in base64")
    return Ed25519PublicKey.from_public_bytes(raw)


def _invalid_secret(detail: str) -> InvalidInput:
    """Build the error without the value, so that no secret gets into logs and responses."""
    return InvalidInput.of("/secret", detail)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes | None:
    """Decode strict base64, padded or not. Returns None if it is invalid."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
