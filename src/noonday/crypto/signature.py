"""Signatures on what travels: whoever can write to a topic cannot say what only we may say."""

import hmac
from hmac import HMAC

from noonday.crypto.keyring import Keyring

_PURPOSE = b"noonday: messages on the bus"
_MAC_BYTES = 32


class Signer:
    """HMAC-SHA256 with keys derived from those of the keyring. Any thread may use it.

    A signature holds for one place: the same bytes elsewhere do not verify.
    """

    def __init__(self, keyring: Keyring) -> None:
        self._secrets = {key_id.encode(): secret for key_id, secret in keyring.derive(_PURPOSE).items()}
        self._current = keyring.current.encode()
        self._begun: dict[tuple[bytes, str], HMAC] = {}
        """What every signature for a place begins with, computed once."""

    def sign(self, place: str, value: bytes) -> bytes:
        """The id of the key, a colon, and 32 bytes."""
        return self._current + b":" + self._mac(self._current, place, value)

    def verify(self, place: str, value: bytes, signature: bytes) -> bool:
        """Whether one of our keys signed exactly this for exactly this place."""
        key_id, found = signature[: -_MAC_BYTES - 1], signature[-_MAC_BYTES:]
        if key_id not in self._secrets or signature[-_MAC_BYTES - 1 : -_MAC_BYTES] != b":":
            return False
        return hmac.compare_digest(self._mac(key_id, place, value), found)

    def _mac(self, key_id: bytes, place: str, value: bytes) -> bytes:
        begun = self._begun.get((key_id, place))
        if begun is None:
            # The length keeps ("a", "bc") and ("ab", "c") apart.
            begun = hmac.new(self._secrets[key_id], f"{len(place)}:{place}:".encode(), "sha256")
            self._begun[key_id, place] = begun
        mac = begun.copy()
        mac.update(value)
        return mac.digest()
