"""What is kept about those whom webhooks call. An endpoint is scheme, host and port, and everything about it is per tenant."""

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


class EndpointRow(msgspec.Struct, frozen=True):
    """What is known of an endpoint. Only those have a row that were called, or are set."""

    tenant: TenantId
    endpoint: str
    settings: EndpointSettings
    health: EndpointHealth

    @property
    def whom(self) -> Whom:
        return self.tenant, self.endpoint


class Failures(msgspec.Struct, frozen=True):
    """What came of calls to somebody since the last success."""

    count: int
    error: str
    """The last one, for people."""


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

    @abstractmethod
    async def find(self, whom: Whom) -> EndpointRow | None: ...

    @abstractmethod
    async def list_endpoints(self, tenant: TenantId, after: str | None, limit: int) -> list[EndpointRow]:
        """By name, beginning after the endpoint `after`."""

    @abstractmethod
    async def put(self, whom: Whom, settings: EndpointSettings, now_ms: int, audit: AuditEntry) -> EndpointRow:
        """Replace what was set."""

    @abstractmethod
    async def limits_of(self, whom: Collection[Whom]) -> Mapping[Whom, EndpointLimits]:
        """Of those that have any."""

    @abstractmethod
    async def note_calls(self, succeeded: Collection[Whom], failed: Mapping[Whom, Failures], now_ms: int) -> None:
        """What came of calls: first these succeeded, which forgives all that was; then those failed. Told twice, failures
        count twice."""

    @abstractmethod
    async def hopeless(self, now_ms: int, limit: int) -> list[EndpointRow]:
        """Those that have failed for as long as their settings bear, as `EndpointHealth.is_hopeless` says."""

    @abstractmethod
    async def disable(
        self, whom: Whom, why: str, now_ms: int, audit: AuditEntry, *, failing_since_ms: int | None = None
    ) -> bool:
        """It is not called any more, and somebody has to hear of it: an incident of kind DISABLED, in the same transaction. Its
        tasks are to be halted: until `settled` is told, `unsettled` lists it. False if it is disabled; or if it does not fail
        since `failing_since_ms`, where that is said: nothing was changed."""

    @abstractmethod
    async def enable(self, whom: Whom, now_ms: int, audit: AuditEntry) -> bool:
        """It may be called again, and all its failures are forgotten. Its tasks are to be resumed: `unsettled` lists it. False
        if it is not disabled."""

    @abstractmethod
    async def unsettled(self, limit: int) -> list[tuple[EndpointRow, int]]:
        """Endpoints that were disabled or enabled and whose tasks may not all know it, and since when."""

    @abstractmethod
    async def settled(self, whom: Whom, since_ms: int) -> None:
        """The tasks of an endpoint know all that was done to it up to that change."""

    @abstractmethod
    async def tasks_to_halt(self, whom: Whom, after: JobId | None, limit: int) -> list[JobId]:
        """Tasks for an endpoint that are active and of which something is to come, by id."""

    @abstractmethod
    async def tasks_to_resume(self, whom: Whom, halted: str, after: JobId | None, limit: int) -> list[JobId]:
        """Tasks for an endpoint that were halted with a reason that begins like this, by id."""

    @abstractmethod
    async def forget(self, unused_since_ms: int, limit: int) -> int:
        """Drop endpoints that are as everybody is, and were not called since an instant. Answers how many."""


def to_sign_with(secrets: Iterable[Secret], whom: Collection[Whom], now_ms: int) -> dict[Whom, tuple[bytes, ...]]:
    """Of each its own valid ones, or else its tenant's."""
    by_whom: dict[Whom, list[Secret]] = {}
    for secret in secrets:
        if secret.is_valid(now_ms):
            by_whom.setdefault((secret.tenant, secret.endpoint), []).append(secret)
    chosen = {name: by_whom.get(name) or by_whom.get((name[0], OF_TENANT), []) for name in whom}
    return {name: tuple(secret.sealed for secret in _newest_first(found)) for name, found in chosen.items()}


def row_of(columns: Iterable[Any]) -> EndpointRow:
    """Of a row of the store: tenant, endpoint, what is set as JSON, and its health."""
    tenant, endpoint, settings, *health = columns
    return EndpointRow(tenant, endpoint, _settings(settings), EndpointHealth(*health))


def limits_in(rows: Iterable[Any]) -> dict[Whom, EndpointLimits]:
    """Of rows of (tenant, endpoint, what is set as JSON)."""
    found = {(tenant, endpoint): _settings(text).limits for tenant, endpoint, text in rows}
    return {whom: limits for whom, limits in found.items() if limits is not None}


def _settings(text: str | None) -> EndpointSettings:
    return EndpointSettings() if text is None else read_stored(text, EndpointSettings)


def _newest_first(secrets: Sequence[Secret]) -> list[Secret]:
    return sorted(secrets, key=lambda secret: (secret.created_ms, secret.id), reverse=True)
