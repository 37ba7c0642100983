"""Store the rows of notifications by bucket, and the progress of pollers, in SQLite."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.write_sets import answer_of, insert_many, rows_by_name
from noonday.model.ids import InstanceId, TenantId
from noonday.model.notifications.notification import NotificationId
from noonday.model.notifications.schedule import (
    AnnouncedBucket,
    Bucket,
    BucketProgress,
    PollTakeover,
    RowKey,
    ScheduledRow,
)
from noonday.model.notifications.sending import ChannelKind
from noonday.ports.notifications import ScheduledNotifications
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "scheduled_notifications")
_FIRST = RowKey(-(2**62), NotificationId(""), 0)
"""A position before every row."""
_keys = msgspec.json.Decoder(list[RowKey])


class SqliteScheduledNotifications(ScheduledNotifications):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put(self, rows: Sequence[ScheduledRow], announced: Sequence[AnnouncedBucket], writer: str) -> None:
        if not rows and not announced:
            return
        stored = [SQL.values(SQL.add_rows, _stored(row)) for row in rows]
        by_user, buckets = as_json(_by_user(rows)), as_json(_announcements(announced))

        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.announce, (buckets, writer))
            conn.execute(SQL.index_by_user, (by_user,))
            insert_many(conn, SQL.add_rows, stored)

        await self._database.write(work)

    async def buckets(self, partitions: Collection[int], first_minute: int, last_minute: int) -> list[AnnouncedBucket]:
        parameters = (as_json(list(partitions)), first_minute, last_minute)
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.buckets, *parameters))
        return [AnnouncedBucket(_bucket(row), row["rows"]) for row in rows]

    async def read(self, bucket: Bucket, after: RowKey | None, until_ms: int, limit: int) -> list[ScheduledRow]:
        parameters = (*bucket, *(after or _FIRST), until_ms, limit)
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.rows_after, *parameters))
        return [_row(bucket, row) for row in rows]

    async def keys(self, bucket: Bucket) -> list[RowKey]:
        return _keys.decode(await self._database.read(lambda conn: answer_of(conn, SQL.keys, *bucket)))

    async def progress(self, buckets: Sequence[Bucket]) -> Mapping[Bucket, BucketProgress]:
        named = as_json([bucket._asdict() for bucket in buckets])
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.progress, named))
        return {progress.bucket: progress for progress in map(_progress, rows)}

    async def advance(self, progress: BucketProgress) -> bool:
        values = SQL.values(SQL.advance, _stored_progress(progress))
        return await self._database.write(lambda conn: conn.execute(SQL.advance, values).fetchone() is not None)

    async def take_over(self, partitions: Collection[int], owner: InstanceId) -> Mapping[int, PollTakeover]:
        parameters = (as_json(list(partitions)), owner)
        rows = await self._database.write(lambda conn: rows_by_name(conn, SQL.take_over, *parameters))
        return {row["partition"]: PollTakeover(row["epoch"], row["floor_minute"]) for row in rows}

    async def set_floor(self, partition: int, epoch: int, minute: int) -> bool:
        parameters = (partition, epoch, minute)
        return await self._database.write(lambda conn: conn.execute(SQL.set_floor, parameters).fetchone() is not None)

    async def mark(self, rows: Sequence[ScheduledRow]) -> None:
        named = as_json([{**row.bucket._asdict(), **row.key._asdict()} for row in rows])
        await self._database.write(lambda conn: conn.execute(SQL.mark, (named,)))

    async def find(self, tenant: TenantId, notification: NotificationId) -> ScheduledRow | None:
        rows = await self._database.read(lambda conn: rows_by_name(conn, SQL.find, tenant, notification))
        return _row(_bucket(rows[0]), rows[0]) if rows else None

    async def drop(self, bucket: Bucket) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.drop_rows, bucket)
            conn.execute(SQL.drop_announcements, (*bucket, bucket.partition))
            conn.execute(SQL.drop_progress, bucket)

        await self._database.write(work)


class _StoredRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A row with one field for each column."""

    minute: int
    stream: int
    share: str
    shard: int
    scheduled_ms: int
    id: str
    number: int
    tenant: str
    user_id: str
    channel: str
    data: bytes
    created_ms: int
    expires_ms: int
    verify: bool


def _stored(row: ScheduledRow) -> _StoredRow:
    bucket = row.bucket
    return _StoredRow(
        minute=bucket.minute,
        stream=bucket.stream,
        share=bucket.share,
        shard=bucket.shard,
        scheduled_ms=row.scheduled_ms,
        id=row.id,
        number=row.number,
        tenant=row.tenant,
        user_id=row.user_id,
        channel=row.channel.value,
        data=row.data,
        created_ms=row.created_ms,
        expires_ms=row.expires_ms,
        verify=row.verify,
    )


def _row(bucket: Bucket, row: Mapping[str, Any]) -> ScheduledRow:
    return ScheduledRow(
        bucket=bucket,
        scheduled_ms=row["scheduled_ms"],
        id=NotificationId(row["id"]),
        number=row["number"],
        tenant=row["tenant"],
        user_id=row["user_id"],
        channel=ChannelKind(row["channel"]),
        data=row["data"],
        created_ms=row["created_ms"],
        expires_ms=row["expires_ms"],
        verify=bool(row["verify"]),
    )


def _by_user(rows: Iterable[ScheduledRow]) -> list[dict[str, object]]:
    return [
        {
            "tenant": row.tenant,
            "id": row.id,
            "user_id": row.user_id,
            "created_ms": row.created_ms,
            "heard_ms": max(row.created_ms, row.scheduled_ms),
        }
        for row in rows
    ]


def _announcements(announced: Iterable[AnnouncedBucket]) -> list[dict[str, object]]:
    return [{**each.bucket._asdict(), "partition": each.bucket.partition, "rows": each.rows} for each in announced]


def _bucket(row: Mapping[str, Any]) -> Bucket:
    return Bucket(row["minute"], row["stream"], row["share"], row["shard"])


class _StoredProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a bucket with one field for each column."""

    minute: int
    stream: int
    share: str
    shard: int
    epoch: int
    position_ms: int | None
    position_id: str | None
    position_number: int | None
    done: int
    done_xor: int
    closed: bool


def _stored_progress(progress: BucketProgress) -> _StoredProgress:
    bucket, position = progress.bucket, progress.position
    return _StoredProgress(
        minute=bucket.minute,
        stream=bucket.stream,
        share=bucket.share,
        shard=bucket.shard,
        epoch=progress.epoch,
        position_ms=position.scheduled_ms if position else None,
        position_id=position.id if position else None,
        position_number=position.number if position else None,
        done=progress.done,
        done_xor=progress.done_xor,
        closed=progress.closed,
    )


def _progress(row: Mapping[str, Any]) -> BucketProgress:
    is_begun = row["position_ms"] is not None
    return BucketProgress(
        bucket=_bucket(row),
        epoch=row["epoch"],
        position=RowKey(row["position_ms"], row["position_id"], row["position_number"]) if is_begun else None,
        done=row["done"],
        done_xor=row["done_xor"],
        closed=bool(row["closed"]),
    )
