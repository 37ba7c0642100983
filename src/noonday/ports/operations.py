"""The store of bulk operations."""

from abc import ABC, abstractmethod

from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.operation import BulkOperation
from noonday.model.receipt import Receipt


class Operations(ABC):
    """Store operations and their progress. Several processes may work on them: `replace` decides who goes on."""

    @abstractmethod
    async def add(
        self, operation: BulkOperation, most_running: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """Store a new operation. Returns False, and stores nothing, if the tenant has `most_running` running ones."""

    @abstractmethod
    async def find(self, tenant: TenantId, operation_id: str) -> BulkOperation | None: ...

    @abstractmethod
    async def list_operations(self, tenant: TenantId, after: str | None, limit: int) -> list[BulkOperation]:
        """Return operations, newest first, beginning after the id `after`."""

    @abstractmethod
    async def due(self, now_ms: int, limit: int) -> list[BulkOperation]:
        """Return running operations whose next step is due, the longest due first, at most one of each tenant."""

    @abstractmethod
    async def next_due_ms(self) -> int | None:
        """Return when the next step of a running operation is due."""

    @abstractmethod
    async def replace(
        self, operation: BulkOperation, audit: AuditEntry | None = None, receipt: Receipt | None = None
    ) -> bool:
        """Store an operation under the next version. Returns False, and stores nothing, if its version is not the present one."""

    @abstractmethod
    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete operations that ended before an instant. Returns their number."""
