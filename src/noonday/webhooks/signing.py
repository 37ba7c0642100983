"""Signatures by Standard Webhooks 1.0, for whoever sends and for whoever receives.

What is signed is the id of the message, a full stop, the time of the attempt in seconds, a full stop, and the raw body. A
secret says by its prefix how it signs: `whsec_` is shared and makes HMAC-SHA256 (`v1`), `whsk_` is private and makes ed25519
(`v1a`), which `whpk_` verifies. While a secret is replaced, the old and the new one both sign.
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
"""Of one message. Each may cost a verification, and whoever sends is not known yet."""

_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class KeyPair:
    """The private key signs and stays here; the public key is given to whoever receives."""

    private: str
    public: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


def new_secret() -> str:
    """A fresh shared secret: `whsec_` and 32 random bytes in base64."""
    return SHARED + _text(os.urandom(NEW_SECRET_BYTES))


def new_key_pair() -> KeyPair:
    """A fresh ed25519 pair. The private key is written as seed and public key together, as is usual."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    return KeyPair(PRIVATE + _text(key.private_bytes_raw() + public), PUBLIC + _text(public))


def public_key_of(private: str) -> str:
    """The `whpk_` key that verifies what a `whsk_` key signs. Raises InvalidInput if it is no such key."""
    if not private.startswith(PRIVATE):
        raise _bad_secret(f"a private key begins with {PRIVATE}")
    return PUBLIC + _text(_private_key(private).public_key().public_bytes_raw())


def sign(secrets: Sequence[str], message_id: str, at_sec: int, body: bytes) -> dict[str, str]:
    """The three headers of one attempt, with a signature for each secret, in their order.

    `message_id` is the same for every attempt of a message, `at_sec` is the time of this one, and `body` exactly what is
    sent. Raises InvalidInput for a secret that cannot sign, for none at all, and for an id with a full stop in it: moved
    full stops would make one message look like another.
    """
    if not secrets:
        raise InvalidInput.of("/secrets", "at least one secret is needed to sign")
    if not _MESSAGE_ID.fullmatch(message_id):
        detail = "must be 1 to 256 visible ASCII characters without a full stop"
        raise InvalidInput.of("/message_id", detail, message_id[:256])
    if at_sec < 0:
        raise InvalidInput.of("/at_sec", "must be seconds since 1970", at_sec)
    signed = _signed(message_id, str(at_sec), body)
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
    """The id of a message that one of `secrets` has signed, which a receiver remembers in order to do nothing twice.

    `secrets` may be shared ones, public keys and private keys; names of headers in any case. Raises Unauthorized, with
    the reason, if a header is missing or not as it should be, if the attempt was made more than `tolerance_sec` before or
    after `now_sec`, or if no signature fits; InvalidInput if one of `secrets` is none. How long it takes does not tell how
    much of a signature was right.
    """
    checkers = [_checker(secret) for secret in secrets]
    found = {name.lower(): value for name, value in headers.items()}
    message_id, at = _header(found, ID_HEADER, _MESSAGE_ID), _header(found, TIMESTAMP_HEADER, _SECONDS)
    _refuse_if_not_now(int(at), now_sec, tolerance_sec)
    signatures = _signatures(found)
    signed = _signed(message_id, at, body)
    if not any(checker.accepts(signed, signatures.get(checker.version, [])) for checker in checkers):
        raise Unauthorized("no signature of this message was made with a secret that is known here")
    return message_id


def _signed(message_id: str, at: str, body: bytes) -> bytes:
    return f"{message_id}.{at}.".encode() + body


def _header(headers: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    value = headers.get(name)
    if value is None:
        raise Unauthorized(f"the header {name} is missing")
    if not form.fullmatch(value):
        raise Unauthorized(f"the header {name} is not as it should be")
    return value


def _refuse_if_not_now(at_sec: int, now_sec: float, tolerance_sec: float) -> None:
    if abs(now_sec - at_sec) > tolerance_sec:
        side = "before" if at_sec < now_sec else "after"
        raise Unauthorized(f"the attempt was made more than {tolerance_sec:g} s {side} now")


def _signatures(headers: Mapping[str, str]) -> dict[str, list[bytes]]:
    """Those that can be read, by version. Others are passed over: a newer sender may add versions."""
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
        # `hmac.digest` gives up the interpreter lock, however short the text: in a busy process that costs more than the digest.
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
        return any(self._made(signature, signed) for signature in signatures)

    def _made(self, signature: bytes, signed: bytes) -> bool:
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
    raise _bad_secret(f"what signs begins with {SHARED} or {PRIVATE}")


def _checker(secret: str) -> _Checker:
    if secret.startswith(SHARED):
        return _Shared(_shared_key(secret))
    if secret.startswith(PUBLIC):
        return _Public(_public_key(secret))
    if secret.startswith(PRIVATE):
        return _Public(_private_key(secret).public_key())
    raise _bad_secret(f"a secret begins with {SHARED}, {PUBLIC} or {PRIVATE}")


def _shared_key(secret: str) -> bytes:
    key = _bytes(secret.removeprefix(SHARED))
    if key is None or not LEAST_SECRET_BYTES <= len(key) <= MOST_SECRET_BYTES:
        raise _bad_secret(f"after {SHARED} come {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes in base64")
    return key


def _private_key(secret: str) -> Ed25519PrivateKey:
    raw = _bytes(secret.removeprefix(PRIVATE))
    if raw is None or len(raw) not in (32, 64):
        raise _bad_secret(f"after {PRIVATE} come 32 bytes in base64, or 64 with the public key")
    key = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if raw[32:] and key.public_key().public_bytes_raw() != raw[32:]:
        raise _bad_secret("the public key in it does not belong to the private one")
    return key


def _public_key(secret: str) -> Ed25519PublicKey:
    raw = _bytes(secret.removeprefix(PUBLIC))
    if raw is None or len(raw) != 32:
        raise _bad_secret(f"after {PUBLIC} come 32 bytes in base64")
    return Ed25519PublicKey.from_public_bytes(raw)


def _bad_secret(detail: str) -> InvalidInput:
    """Without the value, which would end in logs and answers."""
    return InvalidInput.of("/secret", detail)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes | None:
    """Base64, padded or not, and nothing else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
