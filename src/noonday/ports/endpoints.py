"""The store of webhook endpoints: their secrets, settings and health.

An endpoint is scheme, host and port. Everything about it is per tenant.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from noonday.model.endpoint import EndpointHealth, EndpointLimits, EndpointSettings
from noonday.model.ids import JobId, TenantId
from noonday.model.stored import read_stored
from noonday.ports.jobs import AuditEntry, Receipt

OF_TENANT = ""
"""The endpoint of a secret that serves all endpoints of its tenant that have no secret of their own."""
Whom = tuple[TenantId, str]
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


class EndpointRow(msgspec.Struct, frozen=True):
    """The settings and health of an endpoint. Only an endpoint that was called or has settings has a row."""

    tenant: TenantId
    endpoint: str
    settings: EndpointSettings
    health: EndpointHealth

    @property
    def whom(self) -> Whom:
        return self.tenant, self.endpoint


class Failures(msgspec.Struct, frozen=True):
    """Failed calls to an endpoint since its last success."""

    count: int
    error: str
    """The last error, for people."""


class Endpoints(ABC):
    """Store the secrets, settings and health of endpoints, and disable or enable them."""

    @abstractmethod
    async def add_secret(
        self, secret: Secret, former_until_ms: int, audit: AuditEntry | None, receipt: Receipt | None = None
    ) -> bool:
        """Add a secret that signs calls from now on. Returns False if the tenant has a secret with this id.

        The former secret of the same endpoint stays valid until `former_until_ms`, so that receivers have time to change. A
        secret that was already due to end ends at once.
        """

    @abstractmethod
    async def end_secret(self, tenant: TenantId, secret: str, now_ms: int, audit: AuditEntry) -> Secret | None:
        """End a secret: it signs nothing from now on. Returns it, or None if it does not exist or has ended."""

    @abstractmethod
    async def secrets(self, tenant: TenantId) -> list[Secret]:
        """Return the secrets of a tenant, newest first, including those that ended recently."""

    @abstractmethod
    async def sealed_for(self, whom: Collection[Whom], now_ms: int) -> Mapping[Whom, tuple[bytes, ...]]:
        """Return the sealed secrets that sign calls to these endpoints, newest first."""

    @abstractmethod
    async def find(self, whom: Whom) -> EndpointRow | None: ...

    @abstractmethod
    async def list_endpoints(self, tenant: TenantId, after: str | None, limit: int) -> list[EndpointRow]:
        """Return the endpoints of a tenant by name, beginning after the endpoint `after`."""

    @abstractmethod
    async def put(self, whom: Whom, settings: EndpointSettings, now_ms: int, audit: AuditEntry) -> EndpointRow:
        """Replace the settings of an endpoint."""

    @abstractmethod
    async def limits_of(self, whom: Collection[Whom]) -> Mapping[Whom, EndpointLimits]:
        """Return the limits of these endpoints. An endpoint without limits is missing."""

    @abstractmethod
    async def note_calls(self, succeeded: Collection[Whom], failed: Mapping[Whom, Failures], now_ms: int) -> None:
        """Record the outcomes of calls: first the successes, which clear all earlier failures, then the failures.

        Failures that are recorded twice count twice.
        """

    @abstractmethod
    async def hopeless(self, now_ms: int, limit: int) -> list[EndpointRow]:
        """Return the endpoints that have failed for longer than their settings allow (`EndpointHealth.is_hopeless`)."""

    @abstractmethod
    async def disable(
        self, whom: Whom, why: str, now_ms: int, audit: AuditEntry, *, failing_since_ms: int | None = None
    ) -> bool:
        """Disable an endpoint: it is not called any more. Writes an incident of kind DISABLED in the same transaction.

        Its tasks have to be halted: `unsettled` lists the endpoint until `settled` is called. Returns False, and changes
        nothing, if it is disabled already, or if `failing_since_ms` is given and it does not fail since that instant.
        """

    @abstractmethod
    async def enable(self, whom: Whom, now_ms: int, audit: AuditEntry) -> bool:
        """Enable an endpoint again and clear its failures. Returns False if it is not disabled.

        Its tasks have to be resumed: `unsettled` lists the endpoint.
        """

    @abstractmethod
    async def unsettled(self, limit: int) -> list[tuple[EndpointRow, int]]:
        """Return (endpoint, instant of the change) of endpoints whose tasks may not all be halted or resumed yet."""

    @abstractmethod
    async def settled(self, whom: Whom, since_ms: int) -> None:
        """Note that the tasks of an endpoint are halted or resumed as of its change at `since_ms`."""

    @abstractmethod
    async def tasks_to_halt(self, whom: Whom, after: JobId | None, limit: int) -> list[JobId]:
        """Return the active tasks of an endpoint that are not finished, by id, beginning after `after`."""

    @abstractmethod
    async def tasks_to_resume(self, whom: Whom, halted: str, after: JobId | None, limit: int) -> list[JobId]:
        """Return the tasks of an endpoint whose halt reason begins with `halted`, by id, beginning after `after`."""

    @abstractmethod
    async def forget(self, unused_since_ms: int, limit: int) -> int:
        """Delete endpoints that have no settings, are not disabled, and were not called since an instant. Returns how many."""


def to_sign_with(secrets: Iterable[Secret], whom: Collection[Whom], now_ms: int) -> dict[Whom, tuple[bytes, ...]]:
    """Return the sealed secrets that sign calls to each endpoint: its own valid ones, or else its tenant's."""
    by_endpoint: dict[Whom, list[Secret]] = {}
    for secret in secrets:
        if secret.is_valid(now_ms):
            by_endpoint.setdefault((secret.tenant, secret.endpoint), []).append(secret)
    chosen = {name: by_endpoint.get(name) or by_endpoint.get((name[0], OF_TENANT), []) for name in whom}
    return {name: tuple(secret.sealed for secret in _newest_first(found)) for name, found in chosen.items()}


def row_of(columns: Iterable[Any]) -> EndpointRow:
    """Return the endpoint of a stored row: tenant, endpoint, settings as JSON, and the columns of its health."""
    tenant, endpoint, settings, *health = columns
    return EndpointRow(tenant, endpoint, _settings(settings), EndpointHealth(*health))


def limits_in(rows: Iterable[Any]) -> dict[Whom, EndpointLimits]:
    """Return the limits in (tenant, endpoint, settings as JSON) rows. An endpoint without limits is missing."""
    found = {(tenant, endpoint): _settings(text).limits for tenant, endpoint, text in rows}
    return {whom: limits for whom, limits in found.items() if limits is not None}


def _settings(text: str | None) -> EndpointSettings:
    return EndpointSettings() if text is None else read_stored(text, EndpointSettings)


def _newest_first(secrets: Sequence[Secret]) -> list[Secret]:
    return sorted(secrets, key=lambda secret: (secret.created_ms, secret.id), reverse=True)
