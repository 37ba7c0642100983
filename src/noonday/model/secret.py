"""Secrets that sign webhook calls."""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from noonday.model.ids import TenantId

OF_TENANT = ""
"""The endpoint of a secret that serves all endpoints of its tenant that have no secret of their own."""

EndpointKey = tuple[TenantId, str]
"""(tenant, endpoint)."""


class SecretKind(StrEnum):
    HMAC = "HMAC"
    ED25519 = "ED25519"


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """A key that signs calls. It is shown once, at creation: `sealed` is ciphertext."""

    tenant: TenantId
    id: str
    endpoint: str
    kind: SecretKind
    sealed: bytes
    created_ms: int
    expires_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        return self.expires_ms is None or self.expires_ms > now_ms


def to_sign_with(
    secrets: Iterable[Secret], whom: Collection[EndpointKey], now_ms: int
) -> dict[EndpointKey, tuple[bytes, ...]]:
    """Return the sealed secrets that sign calls to each endpoint: its own valid ones, or else its tenant's."""
    by_endpoint: dict[EndpointKey, list[Secret]] = {}
    for secret in secrets:
        if secret.is_valid(now_ms):
            by_endpoint.setdefault((secret.tenant, secret.endpoint), []).append(secret)
    chosen = {name: by_endpoint.get(name) or by_endpoint.get((name[0], OF_TENANT), []) for name in whom}
    return {name: tuple(secret.sealed for secret in _newest_first(found)) for name, found in chosen.items()}


def _newest_first(secrets: Sequence[Secret]) -> list[Secret]:
    return sorted(secrets, key=lambda secret: (secret.created_ms, secret.id), reverse=True)
