"""Settings of tenants and pools, pauses, and the audit."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.message import HandlerInfo
from noonday.model.pause import Pause
from noonday.model.slots import SlotKey, Slots
from noonday.model.view import PoolSettings, TenantSettings


class SettingsStore(ABC):
    """Store the settings of tenants and pools with their caps, the pauses, and the audit of such changes."""

    @abstractmethod
    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None: ...

    @abstractmethod
    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        """Return (tenant, settings, sequence number) of settings that were put after a sequence number, in order. 0: all.

        Numbers grow in the order of commits: a reader that has seen one has seen all lower ones.
        """

    @abstractmethod
    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        """Store the settings of a tenant and its caps. Executions that are dispatched at present count against the caps."""

    @abstractmethod
    async def pool_names(self) -> list[str]: ...

    @abstractmethod
    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None: ...

    @abstractmethod
    async def handler_names(self, pool: str, most: int) -> list[str]:
        """Return the names of the handlers that workers have registered in a pool, in order, at most `most` of them."""

    @abstractmethod
    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        """Store the settings of a pool and its cap. Executions that are dispatched at present count against the cap."""

    @abstractmethod
    async def capped_pools(self) -> list[str]:
        """Return the names of pools that have a cap."""

    @abstractmethod
    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        """Return the use and the cap of slots. A missing slot is unused and has no cap."""

    @abstractmethod
    async def pauses(self) -> list[Pause]:
        """Return the present pauses."""

    @abstractmethod
    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        """Add a pause, effective at once. A pause that exists already keeps its `since_ms`."""

    @abstractmethod
    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        """Remove a pause, if it exists."""

    @abstractmethod
    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        """Return (number, entry) of audit entries that concern the tenant or every tenant, newest first, after `after`."""

    @abstractmethod
    async def note_visit(self, audit: AuditEntry) -> None:
        """Add an OPERATOR_READ entry, unless this subject has one in this tenant for the same day (UTC)."""
