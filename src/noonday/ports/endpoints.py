"""What is kept about those whom webhooks call. An endpoint is scheme, host and port, and everything about it is per tenant."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from noonday.model.ids import TenantId
from noonday.ports.jobs import AuditEntry, Receipt

OF_TENANT = ""
"""The endpoint of a secret that is for all endpoints of its tenant that have none of their own."""
Whom = tuple[TenantId, str]
"""(tenant, endpoint)."""


class SecretKind(StrEnum):
    HMAC = "HMAC"
    ED25519 = "ED25519"


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """What calls are signed with. Never shown again: `sealed` is ciphertext."""

    tenant: TenantId
    id: str
    endpoint: str
    kind: SecretKind
    sealed: bytes
    created_ms: int
    expires_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        return self.expires_ms is None or self.expires_ms > now_ms


class Endpoints(ABC):
    @abstractmethod
    async def add_secret(
        self, secret: Secret, former_until_ms: int, audit: AuditEntry | None, receipt: Receipt | None = None
    ) -> bool:
        """Sign with this one from now on. The one that did so far for the same endpoint goes on until an instant, so that
        receivers have time to change; one that was to end before ends at once. False if the tenant has one of this id."""

    @abstractmethod
    async def end_secret(self, tenant: TenantId, secret: str, now_ms: int, audit: AuditEntry) -> Secret | None:
        """From now on nothing is signed with it. Answers what it was; None if there is none, or it has ended."""

    @abstractmethod
    async def secrets(self, tenant: TenantId) -> list[Secret]:
        """Newest first, with those that ended lately."""

    @abstractmethod
    async def sealed_for(self, whom: Collection[Whom], now_ms: int) -> Mapping[Whom, tuple[bytes, ...]]:
        """What calls of these are to be signed with, newest first."""


def to_sign_with(secrets: Iterable[Secret], whom: Collection[Whom], now_ms: int) -> dict[Whom, tuple[bytes, ...]]:
    """Of each its own valid ones, or else its tenant's."""
    by_whom: dict[Whom, list[Secret]] = {}
    for secret in secrets:
        if secret.is_valid(now_ms):
            by_whom.setdefault((secret.tenant, secret.endpoint), []).append(secret)
    chosen = {name: by_whom.get(name) or by_whom.get((name[0], OF_TENANT), []) for name in whom}
    return {name: tuple(secret.sealed for secret in _newest_first(found)) for name, found in chosen.items()}


def _newest_first(secrets: Sequence[Secret]) -> list[Secret]:
    return sorted(secrets, key=lambda secret: (secret.created_ms, secret.id), reverse=True)
