"""Scheduled notifications: rows in buckets, and the progress of pollers through them.

A bucket is a shard of one minute of one stream. It is read in the order of its rows' keys. Its poller remembers a position, and
closes the bucket when every row has been published or decided.
"""

from typing import NamedTuple

import msgspec
import xxhash

from noonday.model.ids import PARTITIONS
from noonday.model.notifications.notification import MINUTE_MS, NotificationId
from noonday.model.notifications.sending import ChannelKind


class Bucket(NamedTuple):
    """Rows that are stored and polled together."""

    minute: int
    """Minutes since 1970."""
    stream: int
    share: str
    """Empty for the rows of all tenants with few; the tenant for one with many."""
    shard: int

    @property
    def partition(self) -> int:
        """The partition of the poller that owns the bucket. It is the same in every minute."""
        return xxhash.xxh3_64_intdigest(f"{self.stream}/{self.share}/{self.shard}".encode()) % PARTITIONS

    @property
    def end_ms(self) -> int:
        return (self.minute + 1) * MINUTE_MS


class RowKey(NamedTuple):
    """Place of a row in its bucket. A position in a bucket is the key of the last row that was published."""

    scheduled_ms: int
    id: NotificationId
    number: int

    @property
    def hash(self) -> int:
        """63 bits that stand for the key in a checksum."""
        return xxhash.xxh3_64_intdigest(f"{self.scheduled_ms}/{self.id}/{self.number}".encode()) >> 1


class ScheduledRow(msgspec.Struct, frozen=True, kw_only=True):
    """One dispatch of a notification that is to be published at its time."""

    bucket: Bucket
    scheduled_ms: int
    id: NotificationId
    number: int
    tenant: str
    user_id: str
    channel: ChannelKind
    data: bytes
    """Ciphertext of a NotificationDispatch."""
    created_ms: int
    expires_ms: int
    verify: bool = False
    """True if the row was published or decided by others: the poller decides before it publishes it."""

    @property
    def key(self) -> RowKey:
        return RowKey(self.scheduled_ms, self.id, self.number)


class AnnouncedBucket(msgspec.Struct, frozen=True):
    """A bucket that has rows, and how many at least, within a factor of two."""

    bucket: Bucket
    rows: int


class BucketProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a poller has come in a bucket."""

    bucket: Bucket
    epoch: int
    """Epoch of the poller that wrote it. Nobody with a lower one may change it."""
    position: RowKey | None = None
    done: int = 0
    """Number of rows that were published or decided."""
    done_xor: int = 0
    """XOR of the hashes of their keys."""
    closed: bool = False


class PollTakeover(msgspec.Struct, frozen=True):
    """What a new owner of a poll partition goes on from."""

    epoch: int
    floor_minute: int | None
    """The oldest minute that may have an unclosed bucket. None: the partition was never polled."""
