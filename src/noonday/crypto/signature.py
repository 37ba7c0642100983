"""Signatures of bus messages: write access to a topic is not enough to forge a message of ours."""

import hmac
from hmac import HMAC

from noonday.crypto.keyring import Keyring

_PURPOSE = b"noonday: messages on the bus"
_MAC_BYTES = 32


class Signer:
    """Signs with HMAC-SHA256, under keys derived from those of the keyring. Any thread may use it.

    A signature is valid in one context (a topic and partition, for example): the same bytes do not verify in another.
    """

    def __init__(self, keyring: Keyring) -> None:
        self._secrets = {key_id.encode(): secret for key_id, secret in keyring.derive(_PURPOSE).items()}
        self._current = keyring.current.encode()
        self._prefixes: dict[tuple[bytes, str], HMAC] = {}
        """The HMAC state after each (key id, context), computed once."""

    def sign(self, context: str, value: bytes) -> bytes:
        """Return the signature: the key id, a colon, and 32 bytes."""
        return self._current + b":" + self._mac(self._current, context, value)

    def verify(self, context: str, value: bytes, signature: bytes) -> bool:
        """Return whether one of our keys signed exactly this value in exactly this context."""
        key_id, found = signature[: -_MAC_BYTES - 1], signature[-_MAC_BYTES:]
        if key_id not in self._secrets or signature[-_MAC_BYTES - 1 : -_MAC_BYTES] != b":":
            return False
        return hmac.compare_digest(self._mac(key_id, context, value), found)

    def _mac(self, key_id: bytes, context: str, value: bytes) -> bytes:
        prefix = self._prefixes.get((key_id, context))
        if prefix is None:
            # The length keeps ("a", "bc") and ("ab", "c") apart.
            prefix = hmac.new(self._secrets[key_id], f"{len(context)}:{context}:".encode(), "sha256")
            self._prefixes[key_id, context] = prefix
        mac = prefix.copy()
        mac.update(value)
        return mac.digest()
