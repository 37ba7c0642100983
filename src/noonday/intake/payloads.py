"""Payloads of jobs: size, nesting and encryption."""

from typing import Any

import msgspec

from noonday.crypto.envelope import context_of
from noonday.crypto.keyring import Keyring
from noonday.model.errors import InvalidInput, PayloadTooLarge
from noonday.model.limits import Sizes
from noonday.model.nesting import MOST_LEVELS, is_too_deep

_encode = msgspec.json.Encoder().encode


class Payloads:
    """Encodes and encrypts payloads."""

    def __init__(self, keyring: Keyring, limits: Sizes) -> None:
        self._keyring = keyring
        self._limit = limits.payload_bytes

    def encode(self, payload: Any, tenant: str, tenant_limit: int | None = None) -> bytes | None:
        """Encode a payload, before encryption. Raises PayloadTooLarge, and InvalidInput if it is nested too deeply."""
        if payload is None:
            return None
        try:
            plain = _encode(payload)
        except RecursionError:
            raise _too_deep() from None
        if is_too_deep(plain):
            raise _too_deep()
        limit, source = self._limit, ""
        if tenant_limit is not None and tenant_limit < limit:
            limit, source = tenant_limit, f" of tenant {tenant!r} (maxPayloadBytes)"
        if len(plain) > limit:
            raise PayloadTooLarge(
                f"the payload has {len(plain)} bytes, more than the limit{source} of {limit}: "
                "store it elsewhere and pass a reference",
                limit=limit,
                size=len(plain),
            )
        return plain

    def seal(self, plain: bytes | None, tenant: str, job_id: str) -> bytes | None:
        """Encrypt an encoded payload for one job."""
        return None if plain is None else self._keyring.seal(plain, context_of(tenant, job_id))


def _too_deep() -> InvalidInput:
    return InvalidInput.of("/payload", f"the payload is nested more than {MOST_LEVELS} levels deep")
