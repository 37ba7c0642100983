"""The store of webhook endpoints: their secrets, settings and health.

An endpoint is scheme, host and port. Everything about it is per tenant.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from noonday.model.audit import AuditEntry
from noonday.model.endpoint import EndpointLimits, EndpointRow, EndpointSettings, Failures
from noonday.model.ids import JobId, TenantId
from noonday.model.receipt import Receipt
from noonday.model.secret import EndpointKey, Secret


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
    async def sealed_for(self, keys: Collection[EndpointKey], now_ms: int) -> Mapping[EndpointKey, tuple[bytes, ...]]:
        """Return the sealed secrets that sign calls to these endpoints, newest first."""

    @abstractmethod
    async def find(self, key: EndpointKey) -> EndpointRow | None: ...

    @abstractmethod
    async def list_endpoints(self, tenant: TenantId, after: str | None, limit: int) -> list[EndpointRow]:
        """Return the endpoints of a tenant by name, beginning after the endpoint `after`."""

    @abstractmethod
    async def put(self, key: EndpointKey, settings: EndpointSettings, now_ms: int, audit: AuditEntry) -> EndpointRow:
        """Replace the settings of an endpoint."""

    @abstractmethod
    async def limits_of(self, keys: Collection[EndpointKey]) -> Mapping[EndpointKey, EndpointLimits]:
        """Return the limits of these endpoints. An endpoint without limits is missing."""

    @abstractmethod
    async def note_calls(
        self, succeeded: Collection[EndpointKey], failed: Mapping[EndpointKey, Failures], now_ms: int
    ) -> None:
        """Record the outcomes of calls: first the successes, which clear all earlier failures, then the failures.

        Failures that are recorded twice count twice.
        """

    @abstractmethod
    async def failing_too_long(self, now_ms: int, limit: int) -> list[EndpointRow]:
        """Return the endpoints that have failed for `disable_after_days`, at least LEAST_FAILURES times, and are not disabled."""

    @abstractmethod
    async def disable(
        self, key: EndpointKey, why: str, now_ms: int, audit: AuditEntry, *, failing_since_ms: int | None = None
    ) -> bool:
        """Disable an endpoint: it is not called any more. Writes an incident of kind DISABLED in the same transaction.

        Its tasks have to be halted: `unsettled` lists the endpoint until `settled` is called. Returns False, and changes
        nothing, if it is disabled already, or if `failing_since_ms` is given and it does not fail since that instant.
        """

    @abstractmethod
    async def enable(self, key: EndpointKey, now_ms: int, audit: AuditEntry) -> bool:
        """Enable an endpoint again and clear its failures. Returns False if it is not disabled.

        Its tasks have to be resumed: `unsettled` lists the endpoint.
        """

    @abstractmethod
    async def unsettled(self, limit: int) -> list[tuple[EndpointRow, int]]:
        """Return (endpoint, instant of the change) of endpoints whose tasks may not all be halted or resumed yet."""

    @abstractmethod
    async def settled(self, key: EndpointKey, since_ms: int) -> None:
        """Note that the tasks of an endpoint are halted or resumed as of its change at `since_ms`."""

    @abstractmethod
    async def tasks_to_halt(self, key: EndpointKey, after: JobId | None, limit: int) -> list[JobId]:
        """Return the active tasks of an endpoint that are not finished, by id, beginning after `after`."""

    @abstractmethod
    async def tasks_to_resume(self, key: EndpointKey, halted: str, after: JobId | None, limit: int) -> list[JobId]:
        """Return the tasks of an endpoint whose halt reason begins with `halted`, by id, beginning after `after`."""

    @abstractmethod
    async def forget(self, unused_since_ms: int, limit: int) -> int:
        """Delete endpoints that have no settings, are not disabled, and were not called since an instant. Returns how many."""
