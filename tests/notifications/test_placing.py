"""Buckets stay small, and one tenant's rows are in buckets of its own."""

from collections import Counter

from noonday.model.notifications.notification import NotificationId
from noonday.notifications.placing import LATER_SHARD, LATER_SHARDS, ROWS_PER_SHARD, Placing, later_shard_of, shard_of
from tests.notifications.factories import CHANNEL, notification
from tests.support.factories import NOW_MS


def test_the_first_rows_of_a_tenant_are_in_the_bucket_that_all_share() -> None:
    placing = Placing()
    bucket = placing.place(notification(), CHANNEL, NOW_MS, 1)
    assert (bucket.share, bucket.shard) == ("", 0)
    assert bucket.minute == NOW_MS // 60_000


def test_a_tenant_with_many_rows_gets_buckets_of_its_own() -> None:
    placing = Placing()
    many = [placing.place(notification(tenant="large"), CHANNEL, NOW_MS, 1) for _ in range(ROWS_PER_SHARD + 1)]
    assert {bucket.share for bucket in many[:-1]} == {""}
    assert many[-1].share == "large"
    assert placing.place(notification(tenant="small"), CHANNEL, NOW_MS, 1).share == ""


def test_no_shard_has_many_more_rows_than_it_should() -> None:
    rows = Counter(shard_of(row, NotificationId(f"n-{row}")) for row in range(1, 200_000))
    assert max(rows.values()) < 1.5 * ROWS_PER_SHARD


def test_the_rows_of_later_dispatches_depend_on_the_id_alone() -> None:
    one = notification()
    first, second = (placing.place(one, CHANNEL, NOW_MS, 2) for placing in (Placing(), Placing()))
    assert first == second
    assert first.shard == later_shard_of(one.id)
    assert LATER_SHARD <= first.shard < LATER_SHARD + LATER_SHARDS


def test_a_bucket_is_announced_when_it_is_new_and_when_its_rows_have_doubled() -> None:
    placing = Placing()
    announcements = 0
    for _ in range(1_000):
        bucket = placing.place(notification(), CHANNEL, NOW_MS, 1)
        announced = placing.unannounced([bucket])
        placing.note_announced(announced)
        announcements += len(announced)
    assert announcements == 10


def test_an_announcement_that_was_not_stored_is_made_again() -> None:
    placing = Placing()
    bucket = placing.place(notification(), CHANNEL, NOW_MS, 1)
    assert placing.unannounced([bucket]) == placing.unannounced([bucket, bucket])
