"""The store as notices use it: alert preferences, and the notices that collect events until they are sent."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.notice import Digest, OpenNotice, Preference, SelectedEvent
from noonday.model.receipt import Receipt


class Notices(ABC):
    """Store preferences and notices. A notice is open, then closed, then deleted.

    Only an open notice collects events. Only a closed notice is sent.
    """

    @abstractmethod
    async def put_preference(
        self, preference: Preference, most: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """Store a preference. It replaces the one with the same id, whose `created_ms` is kept.

        Returns False if the tenant has `most` other preferences.
        """

    @abstractmethod
    async def delete_preference(
        self, tenant: TenantId, preference: str, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        """Delete a preference and the events that were collected for it. Returns False if it does not exist."""

    @abstractmethod
    async def find_preference(self, tenant: TenantId, preference: str) -> Preference | None: ...

    @abstractmethod
    async def preferences(self, tenants: Collection[str]) -> list[Preference]:
        """Return all preferences of these tenants, by tenant and id."""

    @abstractmethod
    async def collect(
        self, events: Sequence[int], selected: Sequence[SelectedEvent], notices: Sequence[OpenNotice]
    ) -> int:
        """Move events into the notices of the preferences that select them, in one transaction.

        Returns how many of the events still existed: of several processes that collect the same event, exactly one moves it. An
        event goes to the open notice of the preference. If there is none, the one in `notices` is opened.
        """

    @abstractmethod
    async def close_due(self, now_ms: int, limit: int) -> list[OpenNotice]:
        """Close the notices that are due. Returns all closed notices that are not deleted, oldest first."""

    @abstractmethod
    async def next_due_ms(self) -> int | None:
        """Return when the next open notice is due."""

    @abstractmethod
    async def digest(self, notice: OpenNotice, subjects: int) -> Digest:
        """Return the counts of everything that a notice collected, and the items of its first `subjects` subjects."""

    @abstractmethod
    async def drop(self, notice: str) -> None:
        """Delete a notice that was sent or has no recipient. Does nothing if it does not exist."""
