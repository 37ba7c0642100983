"""The stores of notifications: scheduled rows, events, send keys, users and provider accounts."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from noonday.model.audit import AuditEntry
from noonday.model.ids import InstanceId, TenantId
from noonday.model.notifications.notification import DispatchDecision, DispatchKey, NotificationEvent, NotificationId
from noonday.model.notifications.schedule import (
    AnnouncedBucket,
    Bucket,
    BucketProgress,
    PollTakeover,
    RowKey,
    ScheduledRow,
)
from noonday.model.notifications.send_keys import KeyTake
from noonday.model.notifications.user import AccountRow, UserRow
from noonday.model.receipt import Receipt


class ScheduledNotifications(ABC):
    """Store the rows of notifications by bucket, and the progress of the pollers that publish them.

    A write that raises StoreUnavailable may have been applied, may still be applied, or never. Every write may be repeated.
    """

    @abstractmethod
    async def put(self, rows: Sequence[ScheduledRow], announced: Sequence[AnnouncedBucket], writer: str) -> None:
        """Store rows, after the announcements of buckets and the index by user. A row that exists stays as it is.

        `announced`: the buckets that `writer` has not announced before, or whose number of rows has doubled since. Of two
        announcements of a bucket by one writer, the greater number of rows stands.
        """

    @abstractmethod
    async def buckets(self, partitions: Collection[int], first_minute: int, last_minute: int) -> list[AnnouncedBucket]:
        """Return the announced buckets of partitions from one minute to another, inclusive, by minute.

        A bucket is returned once, with the rows of all its writers.
        """

    @abstractmethod
    async def read(self, bucket: Bucket, after: RowKey | None, until_ms: int, limit: int) -> list[ScheduledRow]:
        """Return rows of a bucket after a position, scheduled up to an instant, in the order of their keys."""

    @abstractmethod
    async def keys(self, bucket: Bucket) -> list[RowKey]:
        """Return the keys of all rows of a bucket, in their order."""

    @abstractmethod
    async def progress(self, buckets: Sequence[Bucket]) -> Mapping[Bucket, BucketProgress]:
        """Return the progress of buckets. A bucket that nobody has worked on is missing."""

    @abstractmethod
    async def advance(self, progress: BucketProgress) -> bool:
        """Store progress, unless a higher epoch has touched the bucket. Returns whether it is stored."""

    @abstractmethod
    async def take_over(self, partitions: Collection[int], owner: InstanceId) -> Mapping[int, PollTakeover]:
        """Raise the epochs of partitions and make `owner` their owner."""

    @abstractmethod
    async def set_floor(self, partition: int, epoch: int, minute: int) -> bool:
        """Store the oldest minute of a partition that may have an unclosed bucket. Returns False under a higher epoch."""

    @abstractmethod
    async def mark(self, rows: Sequence[ScheduledRow]) -> None:
        """Set `verify` of rows that exist. Never creates a row."""

    @abstractmethod
    async def find(self, tenant: TenantId, notification: NotificationId) -> ScheduledRow | None:
        """Return the row of a notification with the highest number; of several, the one that is scheduled last."""

    @abstractmethod
    async def drop(self, bucket: Bucket) -> None:
        """Delete a closed bucket with its rows, its announcements and its progress."""


class NotificationEvents(ABC):
    """Store what happened to notifications, and who decided about a dispatch."""

    @abstractmethod
    async def append(self, events: Sequence[NotificationEvent]) -> None:
        """Store events. An event that exists stays as it is."""

    @abstractmethod
    async def decide(self, decision: DispatchDecision) -> DispatchDecision:
        """Store a decision about a dispatch, unless there is one. Returns the one that stands."""

    @abstractmethod
    async def decisions_of(self, keys: Collection[DispatchKey]) -> Mapping[DispatchKey, DispatchDecision]: ...

    @abstractmethod
    async def events_of(
        self, notifications: Collection[tuple[str, NotificationId]]
    ) -> Mapping[NotificationId, list[NotificationEvent]]:
        """Return the events of notifications, which are given as (tenant, notification), by time and name.

        A notification without events is missing.
        """

    @abstractmethod
    async def of_user(
        self, tenant: TenantId, user_id: str, after: tuple[int, NotificationId] | None, limit: int
    ) -> list[tuple[int, NotificationId]]:
        """Return (created_ms, notification) of a user's notifications, newest first, beginning after one of them."""

    @abstractmethod
    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete events, decisions and the index by user of notifications that were last heard of before an instant.

        A notification is heard of at its events and at the times for which its rows are scheduled. Returns the number of deleted
        notifications, at most `limit`.
        """


class SendKeys(ABC):
    """Keys that name a send: of the notifications with one key, one is sent."""

    @abstractmethod
    async def take(self, tenant: str, key: str, notification: NotificationId, number: int, now_ms: int) -> KeyTake:
        """Take a key before a provider is called. It is durable when this returns.

        A key that is held by an earlier number of the same notification is taken: that dispatch has reported that no provider
        accepted it, or there would be no later one. A key whose window has ended is free. A key that was neither sent nor
        released is free after HELD_MS.
        """

    @abstractmethod
    async def holder(self, tenant: str, key: str) -> NotificationId | None:
        """Return the notification that holds a key and has neither released it nor been noted as sent."""

    @abstractmethod
    async def sent(self, tenant: str, key: str, notification: NotificationId, until_ms: int) -> None:
        """Note that a provider accepted the notification, or may have: until an instant, no other one with the key is sent."""

    @abstractmethod
    async def release(self, tenant: str, key: str, notification: NotificationId, number: int) -> None:
        """Give a key back: no provider accepted the notification. A key that was sent, or that a later dispatch has, stays."""

    @abstractmethod
    async def prune(self, now_ms: int, limit: int) -> int:
        """Delete keys that are free. Returns how many, at most `limit`."""


class Users(ABC):
    """Store the profiles of users."""

    @abstractmethod
    async def put(
        self, tenant: TenantId, user_id: str, profile: bytes, now_ms: int, receipt: Receipt | None = None
    ) -> UserRow:
        """Create or replace a profile; `created_ms` is kept. Returns the row with its new version.

        The version is higher than the one before. It begins with `now_ms`, so that a profile that is deleted and later put again
        does not go back to an earlier version. Raises Conflict if the key of the receipt is taken.
        """

    @abstractmethod
    async def find_many(self, users: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], UserRow]:
        """Return users, which are given as (tenant, user id). A user without a profile is missing."""

    @abstractmethod
    async def delete(self, tenant: TenantId, user_id: str) -> bool:
        """Delete a profile. Returns False if there is none."""


class ProviderAccounts(ABC):
    """Store the accounts that tenants have at providers."""

    @abstractmethod
    async def put(self, account: AccountRow, most: int, audit: AuditEntry, receipt: Receipt | None = None) -> bool:
        """Create or replace an account; `created_ms` is kept and a fault is cleared. The version of `account` is not used.

        The version is higher than the one before. It begins with `updated_ms`, so that an account that is deleted and later put
        again does not go back to an earlier version. Returns False if the tenant has `most` other accounts. Raises Conflict if
        the key of the receipt is taken.
        """

    @abstractmethod
    async def find(self, tenant: TenantId, name: str) -> AccountRow | None: ...

    @abstractmethod
    async def has_any(self) -> bool:
        """Return whether any tenant has an account."""

    @abstractmethod
    async def accounts_of(self, tenants: Collection[str]) -> list[AccountRow]:
        """Return all accounts of tenants, by tenant, order and name."""

    @abstractmethod
    async def delete(self, tenant: TenantId, name: str, audit: AuditEntry) -> bool:
        """Delete an account. Returns False if it does not exist."""

    @abstractmethod
    async def stop(self, tenant: TenantId, name: str, version: int, why: str, now_ms: int) -> bool:
        """Note a fault of an account: it is not used until it is put again. The first fault stays.

        Returns False if the account has changed since `version`.
        """
