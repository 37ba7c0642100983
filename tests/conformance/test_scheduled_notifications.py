import asyncio

import msgspec
import pytest

from noonday.model.ids import PARTITIONS, InstanceId, TenantId
from noonday.model.notifications.schedule import AnnouncedBucket, Bucket, BucketProgress, RowKey, ScheduledRow
from noonday.model.notifications.sending import ChannelKind
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications
from tests.support.factories import MINUTE, NOW_MS, SECOND, TENANT
from tests.support.notifications import BUCKET, NOW_MINUTE, notification_id, scheduled_row

OTHER = TenantId("other")
ALL = range(PARTITIONS)
A, B = InstanceId("a"), InstanceId("b")
NEIGHBOURS = [
    BUCKET._replace(minute=NOW_MINUTE + 1),
    BUCKET._replace(minute=NOW_MINUTE - 1),
    BUCKET._replace(stream=2),
    BUCKET._replace(share="acme"),
    BUCKET._replace(shard=1),
]
"""Buckets that differ from BUCKET in one thing."""
END_MS = BUCKET.end_ms


async def put(scheduled: ScheduledNotifications, *rows: ScheduledRow, writer: str = "w") -> None:
    """Store rows as a writer does that announces the bucket of each row anew."""
    counted = {row.bucket: sum(each.bucket == row.bucket for each in rows) for row in rows}
    await scheduled.put(rows, [AnnouncedBucket(*each) for each in counted.items()], writer)


async def announce(scheduled: ScheduledNotifications, bucket: Bucket, rows: int, writer: str = "w") -> None:
    await scheduled.put([], [AnnouncedBucket(bucket, rows)], writer)


def keys_of(rows: list[ScheduledRow]) -> list[RowKey]:
    return [row.key for row in rows]


# Rows


async def test_a_row_is_read_as_it_was_put(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row(
        bucket=Bucket(NOW_MINUTE, 8, "acme", 32_017),
        scheduled_ms=NOW_MS + 17,
        number=3,
        user_id='sam "the user"\n😀',
        channel=ChannelKind.SMS,
        data=bytes(range(256)),
        verify=True,
    )
    await put(scheduled, row)
    assert await scheduled.read(row.bucket, None, END_MS, 10) == [row]
    assert await scheduled.find(TENANT, row.id) == row


async def test_a_row_that_is_put_again_stays_as_it_is(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await put(scheduled, row)
    await put(scheduled, msgspec.structs.replace(row, data=b"other", user_id="kim", expires_ms=0))
    assert await scheduled.read(BUCKET, None, END_MS, 10) == [row]


async def test_a_repeated_put_does_not_clear_a_mark(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await put(scheduled, row)
    await scheduled.mark([row])
    await put(scheduled, row)
    (found,) = await scheduled.read(BUCKET, None, END_MS, 10)
    assert found.verify


async def test_a_row_that_is_twice_in_one_put_is_stored_once(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await put(scheduled, row, msgspec.structs.replace(row, data=b"other"))
    assert await scheduled.read(BUCKET, None, END_MS, 10) == [row]


async def test_nothing_is_put(scheduled: ScheduledNotifications) -> None:
    await scheduled.put([], [], "w")
    assert await scheduled.buckets(ALL, 0, 2 * NOW_MINUTE) == []


async def test_rows_come_in_the_order_of_their_keys(scheduled: ScheduledNotifications) -> None:
    early, late, *same = (scheduled_row(scheduled_ms=NOW_MS + at) for at in (1, 9, 5, 5, 5))
    again = msgspec.structs.replace(same[0], number=10)
    wanted = [early, same[0], again, same[1], same[2], late]
    await put(scheduled, late, *reversed(same), again, early)
    assert await scheduled.read(BUCKET, None, END_MS, 10) == wanted
    assert await scheduled.keys(BUCKET) == keys_of(wanted)


async def test_rows_are_read_page_by_page_after_a_position(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row(scheduled_ms=NOW_MS + at // 3) for at in range(10)]
    await put(scheduled, *rows)
    found: list[ScheduledRow] = []
    while page := await scheduled.read(BUCKET, found[-1].key if found else None, END_MS, 4):
        assert len(page) == min(4, 10 - len(found))
        found += page
    assert found == rows


async def test_a_position_needs_no_row(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row(scheduled_ms=NOW_MS + at) for at in (0, 2)]
    await put(scheduled, *rows)
    between = RowKey(NOW_MS + 1, notification_id(), 1)
    assert await scheduled.read(BUCKET, between, END_MS, 10) == rows[1:]


@pytest.mark.parametrize("field", ["id", "number"])
async def test_the_position_counts_within_one_instant(scheduled: ScheduledNotifications, field: str) -> None:
    row = scheduled_row(number=1)
    later = msgspec.structs.replace(row, **{field: notification_id() if field == "id" else 2})
    await put(scheduled, row, later)
    assert await scheduled.read(BUCKET, row.key, END_MS, 10) == [later]


async def test_rows_are_read_up_to_an_instant(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row(scheduled_ms=NOW_MS + at) for at in range(3)]
    await put(scheduled, *rows)
    assert await scheduled.read(BUCKET, None, NOW_MS - 1, 10) == []
    assert await scheduled.read(BUCKET, None, NOW_MS + 1, 10) == rows[:2]
    assert await scheduled.read(BUCKET, rows[1].key, NOW_MS + 1, 10) == []


async def test_keys_are_those_of_all_rows_of_the_bucket(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row(scheduled_ms=NOW_MS + 59 * SECOND), scheduled_row(scheduled_ms=NOW_MS)]
    await put(scheduled, *rows)
    assert await scheduled.keys(BUCKET) == keys_of([rows[1], rows[0]])


@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=["later", "earlier", "stream", "share", "shard"])
async def test_buckets_are_apart(scheduled: ScheduledNotifications, neighbour: Bucket) -> None:
    row, other = scheduled_row(), scheduled_row(bucket=neighbour)
    await put(scheduled, row, other)
    assert await scheduled.read(BUCKET, None, END_MS, 10) == [row]
    assert await scheduled.keys(BUCKET) == [row.key]
    assert await scheduled.keys(neighbour) == [other.key]


async def test_an_unknown_bucket_is_empty(scheduled: ScheduledNotifications) -> None:
    assert await scheduled.read(BUCKET, None, END_MS, 10) == []
    assert await scheduled.keys(BUCKET) == []


@pytest.mark.slow
async def test_ten_thousand_rows_are_put_at_once(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row(scheduled_ms=NOW_MS + at, bucket=BUCKET._replace(shard=at % 2)) for at in range(10_000)]
    await put(scheduled, *rows)
    for shard in (0, 1):
        wanted = rows[shard::2]
        assert await scheduled.keys(BUCKET._replace(shard=shard)) == keys_of(wanted)
        assert await scheduled.read(BUCKET._replace(shard=shard), None, END_MS, 10_000) == wanted


async def test_concurrent_puts_of_the_same_rows_store_them_once(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row() for _ in range(5)]
    await asyncio.gather(*(put(scheduled, *rows, writer=f"w{number}") for number in range(4)))
    assert await scheduled.read(BUCKET, None, END_MS, 100) == rows


# Finding


async def test_the_row_with_the_highest_number_is_found(scheduled: ScheduledNotifications) -> None:
    first = scheduled_row()
    later = [
        msgspec.structs.replace(first, number=number, bucket=BUCKET._replace(minute=NOW_MINUTE - number))
        for number in (9, 10)
    ]
    await put(scheduled, later[1], first, later[0])
    assert await scheduled.find(TENANT, first.id) == later[1]


async def test_a_row_that_was_moved_is_found_at_its_new_place(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    moved = msgspec.structs.replace(row, scheduled_ms=NOW_MS + MINUTE, bucket=BUCKET._replace(minute=NOW_MINUTE + 1))
    await put(scheduled, moved, row)
    assert await scheduled.find(TENANT, row.id) == moved


async def test_a_row_of_another_tenant_is_not_found(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await put(scheduled, row)
    assert await scheduled.find(OTHER, row.id) is None
    assert await scheduled.find(TENANT, notification_id()) is None


# Marks


async def test_marked_rows_are_verified(scheduled: ScheduledNotifications) -> None:
    rows = [scheduled_row() for _ in range(3)]
    await put(scheduled, *rows)
    await scheduled.mark(rows[:2])
    await scheduled.mark(rows[1:2])
    found = await scheduled.read(BUCKET, None, END_MS, 10)
    assert found == [msgspec.structs.replace(row, verify=True) for row in rows[:2]] + rows[2:]


async def test_a_mark_never_creates_a_row(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await put(scheduled, row)
    await scheduled.mark([scheduled_row(), msgspec.structs.replace(row, number=2)])
    assert await scheduled.read(BUCKET, None, END_MS, 10) == [row]


# Announcements


async def test_buckets_are_returned_by_minute(scheduled: ScheduledNotifications) -> None:
    buckets = [BUCKET._replace(minute=NOW_MINUTE + at, shard=7 - at) for at in range(4)]
    for bucket in (buckets[2], buckets[0], buckets[3], buckets[1]):
        await announce(scheduled, bucket, bucket.shard)
    found = await scheduled.buckets(ALL, NOW_MINUTE, NOW_MINUTE + 3)
    assert found == [AnnouncedBucket(bucket, bucket.shard) for bucket in buckets]


async def test_the_range_of_minutes_is_inclusive(scheduled: ScheduledNotifications) -> None:
    for at in range(4):
        await announce(scheduled, BUCKET._replace(minute=NOW_MINUTE + at), 1)
    found = await scheduled.buckets(ALL, NOW_MINUTE + 1, NOW_MINUTE + 2)
    assert [each.bucket.minute for each in found] == [NOW_MINUTE + 1, NOW_MINUTE + 2]
    assert await scheduled.buckets(ALL, NOW_MINUTE + 2, NOW_MINUTE + 1) == []


async def test_only_buckets_of_the_partitions_are_returned(scheduled: ScheduledNotifications) -> None:
    buckets = [BUCKET._replace(shard=shard) for shard in range(20)]
    for bucket in buckets:
        await announce(scheduled, bucket, 1)
    asked = {buckets[0].partition, buckets[7].partition}
    found = await scheduled.buckets(asked, NOW_MINUTE, NOW_MINUTE)
    assert {each.bucket for each in found} == {bucket for bucket in buckets if bucket.partition in asked}
    assert await scheduled.buckets([], NOW_MINUTE, NOW_MINUTE) == []


async def test_a_bucket_of_several_writers_is_returned_once(scheduled: ScheduledNotifications) -> None:
    await announce(scheduled, BUCKET, 2, "w1")
    await announce(scheduled, BUCKET, 4, "w2")
    assert await scheduled.buckets(ALL, NOW_MINUTE, NOW_MINUTE) == [AnnouncedBucket(BUCKET, 6)]


async def test_the_greater_announcement_of_a_writer_stands(scheduled: ScheduledNotifications) -> None:
    for rows in (2, 8, 4):
        await announce(scheduled, BUCKET, rows)
    assert await scheduled.buckets(ALL, NOW_MINUTE, NOW_MINUTE) == [AnnouncedBucket(BUCKET, 8)]


async def test_rows_need_no_further_announcement(scheduled: ScheduledNotifications) -> None:
    first, second = scheduled_row(), scheduled_row()
    await put(scheduled, first)
    await scheduled.put([second], [], "w")
    assert await scheduled.keys(BUCKET) == [first.key, second.key]
    assert await scheduled.buckets(ALL, NOW_MINUTE, NOW_MINUTE) == [AnnouncedBucket(BUCKET, 1)]


# The index by user


async def test_a_row_is_in_the_index_by_user(scheduled: ScheduledNotifications, events: NotificationEvents) -> None:
    row, other = scheduled_row(), scheduled_row(user_id="kim")
    await put(scheduled, row, other)
    assert await events.of_user(TENANT, "sam", None, 10) == [(row.created_ms, row.id)]


async def test_a_notification_with_several_rows_is_in_the_index_once(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    row = scheduled_row()
    await put(scheduled, row)
    later = msgspec.structs.replace(row, number=2, scheduled_ms=NOW_MS + 1, created_ms=row.created_ms + 1)
    await put(scheduled, row, later)
    assert await events.of_user(TENANT, "sam", None, 10) == [(row.created_ms, row.id)]


# Progress


async def test_progress_is_stored_as_it_is(scheduled: ScheduledNotifications) -> None:
    begun = BucketProgress(bucket=BUCKET, epoch=1)
    assert await scheduled.advance(begun)
    assert await scheduled.progress([BUCKET]) == {BUCKET: begun}
    position = RowKey(NOW_MS + 17, notification_id(), 2)
    ended = BucketProgress(bucket=BUCKET, epoch=1, position=position, done=3, done_xor=(1 << 63) - 1, closed=True)
    assert await scheduled.advance(ended)
    assert await scheduled.progress([BUCKET]) == {BUCKET: ended}


async def test_a_bucket_that_nobody_worked_on_has_no_progress(scheduled: ScheduledNotifications) -> None:
    await put(scheduled, scheduled_row())
    assert await scheduled.progress([BUCKET]) == {}
    assert await scheduled.progress([]) == {}


@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=["later", "earlier", "stream", "share", "shard"])
async def test_the_progress_of_buckets_is_apart(scheduled: ScheduledNotifications, neighbour: Bucket) -> None:
    one, other = BucketProgress(bucket=BUCKET, epoch=5, done=1), BucketProgress(bucket=neighbour, epoch=4, done=2)
    assert await scheduled.advance(one)
    assert await scheduled.advance(other)
    assert await scheduled.progress([BUCKET]) == {BUCKET: one}
    assert await scheduled.progress([neighbour, BUCKET]) == {BUCKET: one, neighbour: other}


async def test_a_lower_epoch_does_not_advance(scheduled: ScheduledNotifications) -> None:
    stands = BucketProgress(bucket=BUCKET, epoch=2, done=1)
    assert await scheduled.advance(stands)
    assert not await scheduled.advance(BucketProgress(bucket=BUCKET, epoch=1, done=9, closed=True))
    assert await scheduled.progress([BUCKET]) == {BUCKET: stands}


async def test_the_same_and_a_higher_epoch_advance(scheduled: ScheduledNotifications) -> None:
    for epoch, done in ((2, 1), (2, 2), (3, 3)):
        assert await scheduled.advance(BucketProgress(bucket=BUCKET, epoch=epoch, done=done))
    assert not await scheduled.advance(BucketProgress(bucket=BUCKET, epoch=2, done=4))
    assert (await scheduled.progress([BUCKET]))[BUCKET].done == 3


async def test_repeating_an_advance_changes_nothing(scheduled: ScheduledNotifications) -> None:
    progress = BucketProgress(bucket=BUCKET, epoch=2, position=RowKey(NOW_MS, notification_id(), 1), done=1, done_xor=7)
    assert await scheduled.advance(progress)
    assert await scheduled.advance(progress)
    assert await scheduled.progress([BUCKET]) == {BUCKET: progress}


# Ownership


async def test_a_take_over_raises_the_epochs_of_its_partitions(scheduled: ScheduledNotifications) -> None:
    first = await scheduled.take_over([3, 4], A)
    second = await scheduled.take_over([4, 5], B)
    assert set(first) == {3, 4}
    assert set(second) == {4, 5}
    assert second[4].epoch > first[4].epoch > 0
    assert (await scheduled.take_over([3], B))[3].epoch > first[3].epoch


async def test_a_take_over_by_the_same_owner_raises_the_epoch(scheduled: ScheduledNotifications) -> None:
    first = await scheduled.take_over([3], A)
    assert (await scheduled.take_over([3], A))[3].epoch > first[3].epoch


async def test_concurrent_take_overs_have_different_epochs(scheduled: ScheduledNotifications) -> None:
    found = await asyncio.gather(*(scheduled.take_over([3], InstanceId(str(number))) for number in range(5)))
    assert len({each[3].epoch for each in found}) == 5


async def test_all_partitions_are_taken_over_at_once(scheduled: ScheduledNotifications) -> None:
    assert set(await scheduled.take_over(ALL, A)) == set(ALL)
    assert await scheduled.take_over([], A) == {}


async def test_a_new_owner_goes_on_from_the_floor(scheduled: ScheduledNotifications) -> None:
    taken = (await scheduled.take_over([3, 4], A))[3]
    assert taken.floor_minute is None
    assert await scheduled.set_floor(3, taken.epoch, NOW_MINUTE)
    assert await scheduled.set_floor(3, taken.epoch, NOW_MINUTE + 1)
    found = await scheduled.take_over([3, 4], B)
    assert (found[3].floor_minute, found[4].floor_minute) == (NOW_MINUTE + 1, None)


async def test_a_former_owner_does_not_set_the_floor(scheduled: ScheduledNotifications) -> None:
    former = (await scheduled.take_over([3], A))[3].epoch
    owner = (await scheduled.take_over([3], B))[3].epoch
    assert await scheduled.set_floor(3, owner, NOW_MINUTE)
    assert not await scheduled.set_floor(3, former, NOW_MINUTE + 9)
    assert (await scheduled.take_over([3], A))[3].floor_minute == NOW_MINUTE


# Deletion


async def test_a_dropped_bucket_is_gone_with_all_it_had(scheduled: ScheduledNotifications) -> None:
    row = scheduled_row()
    await put(scheduled, row, writer="w1")
    await put(scheduled, row, writer="w2")
    await scheduled.advance(BucketProgress(bucket=BUCKET, epoch=9, closed=True))
    await scheduled.drop(BUCKET)
    assert await scheduled.keys(BUCKET) == []
    assert await scheduled.find(TENANT, row.id) is None
    assert await scheduled.buckets(ALL, NOW_MINUTE, NOW_MINUTE) == []
    assert await scheduled.progress([BUCKET]) == {}


@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=["later", "earlier", "stream", "share", "shard"])
async def test_other_buckets_outlive_a_drop(scheduled: ScheduledNotifications, neighbour: Bucket) -> None:
    row, progress = scheduled_row(bucket=neighbour), BucketProgress(bucket=neighbour, epoch=1)
    await put(scheduled, scheduled_row(), row)
    await scheduled.advance(progress)
    await scheduled.drop(BUCKET)
    await scheduled.drop(BUCKET)
    assert await scheduled.keys(neighbour) == [row.key]
    assert await scheduled.progress([neighbour]) == {neighbour: progress}
    assert await scheduled.buckets(ALL, NOW_MINUTE - 1, NOW_MINUTE + 1) == [AnnouncedBucket(neighbour, 1)]


async def test_a_dropped_notification_stays_in_the_index_by_user(
    scheduled: ScheduledNotifications, events: NotificationEvents
) -> None:
    row = scheduled_row()
    await put(scheduled, row)
    await scheduled.drop(BUCKET)
    assert await events.of_user(TENANT, "sam", None, 10) == [(row.created_ms, row.id)]


def test_the_end_of_a_bucket_is_that_of_its_minute() -> None:
    assert END_MS == NOW_MS + MINUTE
