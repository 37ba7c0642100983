"""Choose the bucket of each row, so that no bucket grows without bound and no tenant fills the buckets of the others."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import xxhash

from noonday.model.notifications.identity import stream_of
from noonday.model.notifications.notification import MINUTE_MS, Notification, NotificationId
from noonday.model.notifications.schedule import AnnouncedBucket, Bucket
from noonday.model.notifications.sending import ChannelKind

K = TypeVar("K", bound=Hashable)
ROWS_PER_SHARD = 2_000
"""Rows that one writer puts into a shard, about."""
LARGEST_SPREAD = 8_192
"""Number of shards from which on no more are added."""
LATER_SHARD = 32_000
LATER_SHARDS = 64
"""Shards of rows that follow the first dispatch. Which one depends on the id alone, so that a repeated write is the same row."""
MOST_COUNTERS = 100_000
"""Minutes, streams and shares whose rows a writer counts. The oldest are forgotten: their counts begin again."""


class Placing:
    """The placing of one writer. It counts its rows; the counts end with the process."""

    def __init__(self) -> None:
        self._of_tenant: dict[tuple[int, int, str], int] = {}
        """Number of rows by (minute, stream, tenant)."""
        self._of_share: dict[tuple[int, int, str], int] = {}
        self._rows: dict[Bucket, int] = {}
        self._announced: dict[Bucket, int] = {}

    def place(self, notification: Notification, channel: ChannelKind, scheduled_ms: int, number: int) -> Bucket:
        """Return the bucket of a row, and count the row."""
        minute, stream = scheduled_ms // MINUTE_MS, stream_of(channel, notification.priority)
        if number > 1:
            bucket = Bucket(minute, stream, notification.tenant, later_shard_of(notification.id))
        else:
            share = self._share_of(minute, stream, notification.tenant)
            bucket = Bucket(minute, stream, share, self._shard_of(minute, stream, share, notification.id))
        _count(self._rows, bucket)
        return bucket

    def unannounced(self, buckets: Sequence[Bucket]) -> list[AnnouncedBucket]:
        """Return those buckets that are new, or whose rows have doubled since they were announced."""
        return [
            AnnouncedBucket(bucket, self._rows.get(bucket, 1))
            for bucket in dict.fromkeys(buckets)
            if self._rows.get(bucket, 1) >= 2 * self._announced.get(bucket, 0)
        ]

    def note_announced(self, announced: Sequence[AnnouncedBucket]) -> None:
        """Note that announcements are stored."""
        for each in announced:
            self._announced[each.bucket] = each.rows
        _bound(self._announced)

    def _share_of(self, minute: int, stream: int, tenant: str) -> str:
        return "" if _count(self._of_tenant, (minute, stream, tenant)) <= ROWS_PER_SHARD else tenant

    def _shard_of(self, minute: int, stream: int, share: str, notification: NotificationId) -> int:
        return shard_of(_count(self._of_share, (minute, stream, share)), notification)


def shard_of(row: int, notification: NotificationId) -> int:
    """Return the shard of the n-th row of a share: shard 0 for the first rows, then one of 1, of 2, of 4 shards and so on."""
    spread, end = 1, ROWS_PER_SHARD
    if row <= end:
        return 0
    while row > end + ROWS_PER_SHARD * spread and spread < LARGEST_SPREAD:
        end += ROWS_PER_SHARD * spread
        spread *= 2
    return spread + _hash(notification) % spread


def later_shard_of(notification: NotificationId) -> int:
    """Return the shard of the rows that follow the first dispatch of a notification."""
    return LATER_SHARD + _hash(notification) % LATER_SHARDS


def _hash(notification: NotificationId) -> int:
    return xxhash.xxh3_64_intdigest(notification.encode())


def _count(counts: dict[K, int], key: K) -> int:
    """Count one more of a key. Returns the new count."""
    counts[key] = count = counts.get(key, 0) + 1
    _bound(counts)
    return count


def _bound(counts: dict[K, int]) -> None:
    while len(counts) > MOST_COUNTERS:
        del counts[next(iter(counts))]
