"""Receipts: responses kept under an Idempotency-Key."""

import msgspec

from noonday.model.ids import TenantId


class Receipt(msgspec.Struct, frozen=True):
    """The response kept under an Idempotency-Key, written in the transaction of the request that it answers."""

    tenant: TenantId
    key: str
    fingerprint: str
    at_ms: int
    status: int = 0
    body: bytes = b""
