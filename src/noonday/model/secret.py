"""Secrets that sign webhook calls."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

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
    secrets: Iterable[Secret], keys: Collection[EndpointKey], now_ms: int
) -> dict[EndpointKey, tuple[bytes, ...]]:
    """Return the sealed secrets that sign calls to each endpoint: its own valid ones, or else its tenant's."""
    by_endpoint: dict[EndpointKey, list[Secret]] = {}
    for secret in secrets:
        if secret.is_valid(now_ms):
            by_endpoint.setdefault((secret.tenant, secret.endpoint), []).append(secret)
    chosen = {name: by_endpoint.get(name) or by_endpoint.get((name[0], OF_TENANT), []) for name in keys}
    return {name: tuple(secret.sealed for secret in _newest_first(found)) for name, found in chosen.items()}


def _newest_first(secrets: Sequence[Secret]) -> list[Secret]:
    return sorted(secrets, key=lambda secret: (secret.created_ms, secret.id), reverse=True)


DAY_SEC = 86_400


class NewSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request body for a new secret."""

    endpoint: Annotated[
        str | None,
        msgspec.Meta(
            description="URL whose scheme, host and port the secret is for. Default: all endpoints without a secret of their own"
        ),
    ] = None
    kind: SecretKind = SecretKind.HMAC
    overlap_seconds: Annotated[
        int, msgspec.Meta(ge=0, le=30 * DAY_SEC, description="Seconds for which the previous secret also signs")
    ] = DAY_SEC


class SecretView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A secret without its value."""

    id: str
    kind: SecretKind
    created_at: datetime
    endpoint: str | None = None
    expires_at: datetime | None = None


class MadeSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A new secret. This is the only response that contains its value."""

    id: str
    kind: SecretKind
    created_at: datetime
    secret: str
    """Value with which a receiver verifies signatures: `whsec_...`, or the public key `whpk_...`."""
    endpoint: str | None = None
