"""The store as intake uses it: the jobs that handlers have enqueued, until they are created."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from noonday.model.audit import AuditEntry
from noonday.model.change import ChangeResult, NewJob
from noonday.model.child_job import WaitingChildren
from noonday.model.ids import TenantId
from noonday.ports.jobs import Upsert


class CreateChildren(Protocol):
    """`ChildJobs.create` for one row."""

    async def __call__(
        self, jobs: Sequence[NewJob], *, upsert: Upsert, audit: AuditEntry | None
    ) -> list[ChangeResult] | None: ...


class ChildJobs(ABC):
    """List and create child jobs. The settlement of their execution has stored them: `Executions.settle`."""

    @abstractmethod
    async def tenants(self, after: TenantId | None, limit: int) -> list[TenantId]:
        """Return tenants with child jobs that wait to be created, by name, beginning after `after`."""

    @abstractmethod
    async def waiting(self, tenant: TenantId, limit: int) -> list[WaitingChildren]:
        """Return the oldest child jobs of a tenant that wait to be created."""

    @abstractmethod
    async def create(
        self, waiting: WaitingChildren, jobs: Sequence[NewJob], *, upsert: Upsert, audit: AuditEntry | None
    ) -> list[ChangeResult] | None:
        """Store child jobs as `Jobs.add` does, and delete the waiting row in the same transaction.

        A child job whose id exists is not added again. Returns the changes of the jobs whose unique keys were taken. Returns
        None, and changes nothing, if the row does not wait any more: another process has created its jobs.
        """
