import asyncio

import pytest

from noonday.model.notifications.notification import NotificationId
from noonday.model.notifications.send_keys import HELD_MS, KeyTake
from noonday.ports.notifications import SendKeys
from tests.support.factories import DAY, NOW_MS, TENANT

ONE, OTHER = NotificationId("one"), NotificationId("other")
KEY = "a key"
UNTIL_MS = NOW_MS + DAY


async def take(
    keys: SendKeys, notification: NotificationId = ONE, number: int = 1, *, at_ms: int = NOW_MS, key: str = KEY
) -> KeyTake:
    return await keys.take(TENANT, key, notification, number, at_ms)


async def test_a_free_key_is_taken(send_keys: SendKeys) -> None:
    assert await take(send_keys) is KeyTake.TAKEN


async def test_another_notification_waits_while_one_is_sent(send_keys: SendKeys) -> None:
    await take(send_keys)
    assert await take(send_keys, OTHER) is KeyTake.BUSY
    assert await take(send_keys, OTHER, 2) is KeyTake.BUSY


async def test_after_one_is_sent_another_is_a_duplicate(send_keys: SendKeys) -> None:
    await take(send_keys)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    assert await take(send_keys, OTHER) is KeyTake.SENT
    assert await take(send_keys, OTHER, at_ms=UNTIL_MS - 1) is KeyTake.SENT


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_notification_is_sent_once(send_keys: SendKeys, number: int) -> None:
    await take(send_keys, ONE, 2)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    assert await take(send_keys, ONE, number) is KeyTake.SENT_BEFORE


async def test_a_second_delivery_of_a_dispatch_knows_no_outcome(send_keys: SendKeys) -> None:
    await take(send_keys)
    assert await take(send_keys) is KeyTake.UNKNOWN
    assert await take(send_keys) is KeyTake.UNKNOWN


async def test_a_later_dispatch_takes_the_key_of_an_earlier_one(send_keys: SendKeys) -> None:
    await take(send_keys, ONE, 1)
    assert await take(send_keys, ONE, 2) is KeyTake.TAKEN
    assert await take(send_keys, ONE, 2) is KeyTake.UNKNOWN


async def test_a_dispatch_has_ended_when_a_later_one_has_the_key(send_keys: SendKeys) -> None:
    await take(send_keys, ONE, 2)
    assert await take(send_keys, ONE, 1) is KeyTake.SENT_BEFORE
    assert await take(send_keys, ONE, 2) is KeyTake.UNKNOWN


async def test_one_of_concurrent_notifications_takes_the_key(send_keys: SendKeys) -> None:
    takes = await asyncio.gather(*(take(send_keys, NotificationId(str(number))) for number in range(8)))
    assert sorted(takes) == [KeyTake.BUSY] * 7 + [KeyTake.TAKEN]


async def test_a_refused_take_changes_nothing(send_keys: SendKeys) -> None:
    await take(send_keys)
    await take(send_keys, OTHER)
    await send_keys.release(TENANT, KEY, ONE, 1)
    assert await take(send_keys, OTHER) is KeyTake.TAKEN


# Holders


async def test_the_holder_of_a_key_is_known(send_keys: SendKeys) -> None:
    assert await send_keys.holder(TENANT, KEY) is None
    await take(send_keys)
    await take(send_keys, OTHER)
    assert await send_keys.holder(TENANT, KEY) == ONE
    assert await send_keys.holder("other", KEY) is None
    assert await send_keys.holder(TENANT, "another key") is None


async def test_a_key_that_was_sent_or_released_has_no_holder(send_keys: SendKeys) -> None:
    for name in ("sent", "released"):
        await take(send_keys, key=name)
    await send_keys.sent(TENANT, "sent", ONE, UNTIL_MS)
    await send_keys.release(TENANT, "released", ONE, 1)
    assert await send_keys.holder(TENANT, "sent") is None
    assert await send_keys.holder(TENANT, "released") is None


# Windows


async def test_a_key_is_free_when_its_window_has_ended(send_keys: SendKeys) -> None:
    await take(send_keys)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    assert await take(send_keys, OTHER, at_ms=UNTIL_MS) is KeyTake.TAKEN
    assert await take(send_keys, ONE, 2, at_ms=UNTIL_MS) is KeyTake.BUSY


async def test_a_key_that_was_never_given_back_is_free_after_the_longest_life(send_keys: SendKeys) -> None:
    await take(send_keys)
    assert await take(send_keys, OTHER, at_ms=NOW_MS + HELD_MS - 1) is KeyTake.BUSY
    assert await take(send_keys, OTHER, at_ms=NOW_MS + HELD_MS) is KeyTake.TAKEN


async def test_sent_may_be_noted_again(send_keys: SendKeys) -> None:
    await take(send_keys)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    assert await take(send_keys, OTHER) is KeyTake.SENT


async def test_sent_counts_even_if_the_key_was_lost(send_keys: SendKeys) -> None:
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    assert await take(send_keys, OTHER) is KeyTake.SENT
    assert await take(send_keys, ONE) is KeyTake.SENT_BEFORE


async def test_sent_does_not_take_the_key_of_another_notification(send_keys: SendKeys) -> None:
    await take(send_keys, OTHER)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    assert await take(send_keys, ONE) is KeyTake.BUSY
    assert await take(send_keys, OTHER) is KeyTake.UNKNOWN


# Release


async def test_a_released_key_is_free(send_keys: SendKeys) -> None:
    await take(send_keys)
    await send_keys.release(TENANT, KEY, ONE, 1)
    await send_keys.release(TENANT, KEY, ONE, 1)
    assert await take(send_keys, OTHER) is KeyTake.TAKEN


async def test_a_late_release_does_not_free_the_key_of_a_later_dispatch(send_keys: SendKeys) -> None:
    await take(send_keys, ONE, 1)
    await take(send_keys, ONE, 2)
    await send_keys.release(TENANT, KEY, ONE, 1)
    assert await take(send_keys, OTHER) is KeyTake.BUSY
    await send_keys.release(TENANT, KEY, ONE, 2)
    assert await take(send_keys, OTHER) is KeyTake.TAKEN


async def test_a_release_does_not_free_the_key_of_another_notification(send_keys: SendKeys) -> None:
    await take(send_keys, OTHER)
    await send_keys.release(TENANT, KEY, ONE, 9)
    assert await take(send_keys, ONE) is KeyTake.BUSY


async def test_a_late_release_does_not_free_a_key_that_was_sent(send_keys: SendKeys) -> None:
    await take(send_keys)
    await send_keys.sent(TENANT, KEY, ONE, UNTIL_MS)
    await send_keys.release(TENANT, KEY, ONE, 9)
    assert await take(send_keys, OTHER) is KeyTake.SENT


# Others


async def test_keys_and_tenants_are_apart(send_keys: SendKeys) -> None:
    await take(send_keys)
    assert await take(send_keys, OTHER, key="another key") is KeyTake.TAKEN
    assert await send_keys.take("other", KEY, OTHER, 1, NOW_MS) is KeyTake.TAKEN
    await send_keys.sent("other", KEY, OTHER, UNTIL_MS)
    await send_keys.release("other", "another key", OTHER, 1)
    assert await take(send_keys, OTHER) is KeyTake.BUSY
    assert await take(send_keys, ONE, key="another key") is KeyTake.BUSY


async def test_only_free_keys_are_pruned(send_keys: SendKeys) -> None:
    for name in ("ended", "lasting"):
        await take(send_keys, key=name)
    await send_keys.sent(TENANT, "ended", ONE, UNTIL_MS)
    await send_keys.sent(TENANT, "lasting", ONE, UNTIL_MS + 1)
    await take(send_keys, key="held")
    assert await send_keys.prune(UNTIL_MS - 1, 10) == 0
    assert await send_keys.prune(UNTIL_MS, 10) == 1
    assert await take(send_keys, OTHER, key="lasting", at_ms=UNTIL_MS) is KeyTake.SENT
    assert await take(send_keys, OTHER, key="held", at_ms=UNTIL_MS) is KeyTake.BUSY
    # A key that is gone holds nobody back, whatever the time.
    assert await take(send_keys, OTHER, key="ended") is KeyTake.TAKEN
    assert await send_keys.prune(NOW_MS + HELD_MS - 1, 10) == 1


async def test_only_so_many_keys_are_pruned_at_once(send_keys: SendKeys) -> None:
    for number in range(5):
        await send_keys.sent(TENANT, f"key {number}", ONE, UNTIL_MS + number)
    assert [await send_keys.prune(UNTIL_MS + DAY, 2) for _ in range(4)] == [2, 2, 1, 0]
