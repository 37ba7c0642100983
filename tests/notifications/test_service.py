"""Notifications are accepted, stored once, and shown with their status; a tenant sees its own only."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from noonday.model.errors import Conflict, InvalidInput, NotFound, QuotaExceeded, StoreUnavailable, Unavailable
from noonday.model.notifications.notification import EventKind, NotificationId, NotificationStatus
from noonday.model.notifications.sending import ChannelKind
from noonday.model.notifications.wire import (
    AcceptedNotification,
    NotificationContent,
    NotificationSpec,
    NotificationSummary,
    ProviderSpec,
    UserSpec,
)
from noonday.notifications.accepting import Acceptor
from noonday.notifications.accounts import account_context
from noonday.notifications.profiles import Profiles
from noonday.notifications.queries import MOST_SCANNED
from noonday.notifications.service import NotificationService
from noonday.notifications.user_quota import UserQuota
from tests.notifications.parts import ANN, SMTP, STRANGER, NotificationParts, opened_parts
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS, TENANT, WORKER, instant

SPEC = NotificationSpec(
    user_id="u-17", channels=(ChannelKind.EMAIL,), content=NotificationContent(title="Shipped", text="Order A-17")
)
LATER = msgspec.structs.replace(SPEC, scheduled_at=instant(NOW_MS + HOUR))


@pytest.fixture
async def parts() -> AsyncIterator[NotificationParts]:
    async with opened_parts() as opened:
        yield opened


def spec(**fields: Any) -> NotificationSpec:
    return msgspec.structs.replace(SPEC, **fields)


async def status_of(parts: NotificationParts, notification: str) -> NotificationStatus:
    return (await parts.queries.get(ANN, notification)).status


# -- accepting ---------------------------------------------------------------------------------------------------------


async def test_a_notification_for_later_is_scheduled_and_then_queued(parts: NotificationParts) -> None:
    accepted = await parts.service.accept(ANN, LATER)
    assert (accepted.status, accepted.send_at) == (NotificationStatus.SCHEDULED, instant(NOW_MS + HOUR))
    shown = await parts.queries.get(ANN, accepted.id)
    assert (shown.status, shown.final, shown.user_id, shown.channels) == ("SCHEDULED", False, "u-17", ("EMAIL",))
    assert (shown.send_at, shown.expires_at) == (instant(NOW_MS + HOUR), instant(NOW_MS + HOUR + DAY))
    parts.clock.advance(3_600)
    assert await status_of(parts, accepted.id) is NotificationStatus.QUEUED


async def test_a_notification_for_now_is_queued_and_published(parts: NotificationParts) -> None:
    accepted = await parts.service.accept(ANN, SPEC)
    assert accepted.status is await status_of(parts, accepted.id) is NotificationStatus.QUEUED
    (taken,) = await parts.bus.take(WORKER, {"email": 10}, 0)
    assert taken.execution_id == accepted.id


async def test_the_same_key_and_time_store_one_notification(parts: NotificationParts) -> None:
    first = await parts.service.accept(ANN, LATER, "k")
    again = await parts.service.accept(ANN, msgspec.structs.replace(LATER, user_id="u-17"), "k")
    assert again.id == first.id
    assert len((await parts.queries.list_of_user(ANN, "u-17")).notifications) == 1
    assert (await parts.service.accept(ANN, LATER)).id != first.id


async def test_an_unknown_user_is_not_looked_up(parts: NotificationParts) -> None:
    assert (await parts.service.accept(ANN, spec(user_id="nobody"))).id


async def test_a_local_time_is_in_the_zone_of_the_user(parts: NotificationParts) -> None:
    await parts.users.put(ANN, "u-17", UserSpec(zone="Asia/Tokyo"))
    await parts.users.put(ANN, "u-18", UserSpec(email="a@example.com"))
    at_nine = {"local_time": "2030-01-02T09:00"}
    tokyo = await parts.service.accept(ANN, spec(**at_nine))
    utc = await parts.service.accept(ANN, spec(user_id="u-18", **at_nine))
    assert tokyo.send_at.isoformat() == "2030-01-02T00:00:00+00:00"
    assert utc.send_at.isoformat() == "2030-01-02T09:00:00+00:00"


async def test_a_local_time_needs_a_profile_of_the_same_tenant(parts: NotificationParts) -> None:
    await parts.users.put(STRANGER, "u-17", UserSpec(zone="Asia/Tokyo"))
    with pytest.raises(InvalidInput, match="who has no profile: PUT /v1/users") as refused:
        await parts.service.accept(ANN, spec(local_time="2030-01-02T09:00"))
    assert refused.value.flaws[0].pointer == "/local_time"


async def test_a_channel_without_an_account_is_refused_with_the_next_step(parts: NotificationParts) -> None:
    with pytest.raises(Conflict, match="no account for SMS: add one of kind TWILIO with `noonday provider put"):
        await parts.service.accept(ANN, spec(channels=(ChannelKind.SMS,)))
    assert (await parts.service.accept(ANN, spec(channels=(ChannelKind.SMS, ChannelKind.EMAIL)))).id
    with pytest.raises(Conflict, match="no account for EMAIL"):
        await parts.service.accept(STRANGER, SPEC)


async def test_a_new_account_is_known_at_once_and_a_deleted_one_is_not(parts: NotificationParts) -> None:
    with pytest.raises(Conflict):
        await parts.service.accept(STRANGER, SPEC)
    await parts.accounts.put(STRANGER, "mail", SMTP)
    await parts.service.accept(STRANGER, SPEC)
    await parts.accounts.delete(STRANGER, "mail")
    with pytest.raises(Conflict):
        await parts.service.accept(STRANGER, SPEC)


async def test_each_notification_of_a_batch_stands_for_itself(parts: NotificationParts) -> None:
    malformed = InvalidInput("not a notification")
    wrong = [malformed, spec(user_id=""), spec(channels=(ChannelKind.SMS,)), spec(local_time="2030-01-02T09:00")]
    results = await parts.service.accept_many(ANN, [SPEC, *wrong, LATER])
    kinds = [type(each) for each in results]
    accepted = AcceptedNotification
    assert kinds == [accepted, InvalidInput, InvalidInput, Conflict, InvalidInput, accepted]
    assert results[1] is malformed


async def test_a_repeated_batch_stores_each_notification_once(parts: NotificationParts) -> None:
    first = await parts.service.accept_many(ANN, [LATER, LATER], "k")
    again = await parts.service.accept_many(ANN, [LATER, LATER], "k")
    ids = [each.id for each in first if isinstance(each, AcceptedNotification)]
    assert [each.id for each in again if isinstance(each, AcceptedNotification)] == ids
    assert len(set(ids)) == 2
    single = await parts.service.accept(ANN, LATER, "k")
    assert single.id not in ids


class HalfAway(Acceptor):
    """A store that loses its connection after the first notification, as one under a real outage may."""

    async def accept(self, notifications: Any) -> list[Unavailable | None]:
        return [None, *(StoreUnavailable("away") for _ in notifications[1:])]


async def test_a_notification_that_was_not_stored_is_503_and_does_not_count(parts: NotificationParts) -> None:
    profiles = Profiles(parts.store.users, parts.keyring)
    quota = UserQuota(per_day=2)
    service = NotificationService(HalfAway(), parts.store.users, profiles, parts.cache.has_any, parts.clock, quota)
    first, second = await service.accept_many(ANN, [SPEC, SPEC])
    assert isinstance(first, AcceptedNotification)
    assert isinstance(second, StoreUnavailable)
    assert isinstance(await service.accept(ANN, SPEC), AcceptedNotification)


async def test_a_user_has_a_quota_for_each_day() -> None:
    async with opened_parts(UserQuota(per_day=2)) as parts:
        for _ in range(2):
            await parts.service.accept(ANN, SPEC)
        with pytest.raises(QuotaExceeded, match="user 'u-17' has 2 notifications today") as refused:
            await parts.service.accept(ANN, SPEC)
        assert refused.value.retry_after_sec == 86_400
        await parts.service.accept(ANN, spec(user_id="u-18"))
        parts.clock.advance(86_400)
        await parts.service.accept(ANN, SPEC)


def test_the_counts_of_users_are_bounded() -> None:
    quota = UserQuota(per_day=1, most_users=2)
    for name in ("a", "b", "c"):
        quota.take(TENANT, name, NOW_MS)
    quota.take(TENANT, "a", NOW_MS)  # forgotten, so it is counted anew
    with pytest.raises(QuotaExceeded):
        quota.take(TENANT, "c", NOW_MS)


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_a_tenant_sees_its_own_notifications_only(parts: NotificationParts) -> None:
    accepted = await parts.service.accept(ANN, LATER)
    await parts.record(accepted.id, EventKind.SENT)
    with pytest.raises(NotFound, match=f"there is no notification {accepted.id}"):
        await parts.queries.get(STRANGER, accepted.id)
    assert (await parts.queries.list_of_user(STRANGER, "u-17")).notifications == ()
    assert len((await parts.queries.list_of_user(ANN, "u-17")).notifications) == 1


async def test_events_show_what_happened_and_change_the_status(parts: NotificationParts) -> None:
    accepted = await parts.service.accept(ANN, SPEC)
    sent = {"channel": ChannelKind.EMAIL, "provider": "mail", "provider_id": "<m@x>"}
    await parts.record(accepted.id, EventKind.DELIVERED)
    parts.clock.advance(1)
    await parts.record(accepted.id, EventKind.SENT, **sent)
    shown = await parts.queries.get(ANN, accepted.id)
    assert (shown.status, shown.final) == (NotificationStatus.DELIVERED, True)
    assert [event.kind for event in shown.events] == ["DELIVERED", "SENT"]
    last = shown.events[-1]
    assert (last.channel, last.provider, last.provider_id, last.number) == ("EMAIL", "mail", "<m@x>", 1)


async def test_a_notification_is_readable_without_its_row(parts: NotificationParts) -> None:
    accepted = await parts.service.accept(ANN, SPEC)
    row = await parts.scheduled.find(TENANT, NotificationId(accepted.id))
    assert row is not None
    said = {"user_id": "u-17", "channels": SPEC.channels, "priority": SPEC.priority}
    times = {"send_ms": NOW_MS, "expires_ms": NOW_MS + DAY}
    await parts.record(accepted.id, EventKind.ACCEPTED, 0, **said, **times)
    await parts.record(accepted.id, EventKind.FAILED, reason="the user has no email address")
    await parts.scheduled.drop(row.bucket)
    shown = await parts.queries.get(ANN, accepted.id)
    assert (shown.status, shown.reason) == (NotificationStatus.FAILED, "the user has no email address")
    (listed,) = (await parts.queries.list_of_user(ANN, "u-17")).notifications
    assert listed == NotificationSummary(
        **{name: getattr(shown, name) for name in NotificationSummary.__struct_fields__}
    )


async def test_a_receipt_without_its_notification_is_not_found(parts: NotificationParts) -> None:
    id_ = "01a230d5-1280-81a7-9c1e-5b2f6d8e9a01"
    await parts.record(id_, EventKind.DELIVERED)
    with pytest.raises(NotFound):
        await parts.queries.get(ANN, id_)


async def test_notifications_of_a_user_are_listed_newest_first_in_pages(parts: NotificationParts) -> None:
    made = []
    for _ in range(5):
        parts.clock.advance(1)
        made.append((await parts.service.accept(ANN, SPEC)).id)
    await parts.service.accept(ANN, spec(user_id="u-18"))
    seen, cursor = list[str](), None
    while True:
        page = await parts.queries.list_of_user(ANN, "u-17", cursor=cursor, limit=2)
        seen += [each.id for each in page.notifications]
        cursor = page.next
        if cursor is None:
            break
    assert seen == made[::-1]


async def test_a_filter_by_status_reads_on_until_the_page_is_full(parts: NotificationParts) -> None:
    first = await parts.service.accept(ANN, SPEC)
    await parts.record(first.id, EventKind.SENT)
    parts.clock.advance(1)
    await parts.service.accept_many(ANN, [LATER] * 250)
    page = await parts.queries.list_of_user(ANN, "u-17", status=NotificationStatus.SENT, limit=2)
    assert [each.id for each in page.notifications] == [first.id]
    assert page.next is None


@pytest.mark.slow
async def test_one_request_looks_at_a_bounded_number_of_notifications(parts: NotificationParts) -> None:
    first = await parts.service.accept(ANN, SPEC)
    await parts.record(first.id, EventKind.SENT)
    parts.clock.advance(1)
    await parts.service.accept_many(ANN, [LATER] * MOST_SCANNED)
    page = await parts.queries.list_of_user(ANN, "u-17", status=NotificationStatus.SENT)
    assert page.notifications == ()
    rest = await parts.queries.list_of_user(ANN, "u-17", status=NotificationStatus.SENT, cursor=page.next)
    assert [each.id for each in rest.notifications] == [first.id]


@pytest.mark.parametrize(
    "cursor", ["", "x", "5", "5_x", f"5_{'-' * 36}", f"{'9' * 99}_01a230d5-1280-81a7-9c1e-5b2f6d8e9a01"]
)
async def test_malformed_cursor_is_refused(parts: NotificationParts, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="use `next` of its previous page"):
        await parts.queries.list_of_user(ANN, "u-17", cursor=cursor)


# -- what is stored ----------------------------------------------------------------------------------------------------


async def test_content_addresses_and_secrets_are_encrypted_in_the_store(parts: NotificationParts) -> None:
    accepted = await parts.service.accept(ANN, LATER)
    row = await parts.scheduled.find(TENANT, NotificationId(accepted.id))
    assert row is not None
    assert b"Order A-17" not in row.data
    await parts.users.put(ANN, "u-17", UserSpec(email="a@example.com", phone="+4930123456"))
    user = (await parts.store.users.find_many([(TENANT, "u-17")]))[TENANT, "u-17"]
    assert b"a@example.com" not in user.profile
    account = await parts.store.provider_accounts.find(TENANT, "mail")
    assert account is not None
    assert b"hunter2" not in account.secrets
    assert b"hunter2" in parts.keyring.open(account.secrets, account_context(TENANT, "mail"))


async def test_stored_secrets_are_kept_for_the_same_settings_only(parts: NotificationParts) -> None:
    same = ProviderSpec(kind=SMTP.kind, settings=SMTP.settings, order=2)
    kept = await parts.accounts.put(ANN, "mail", same)
    assert (kept.order, kept.secret_names) == (2, ("password",))
    (account,) = await parts.cache.usable(TENANT, ChannelKind.EMAIL, ())
    assert account.secrets == {"password": "hunter2"}
    elsewhere = ProviderSpec(kind=SMTP.kind, settings={"host": "attacker.example"})
    with pytest.raises(InvalidInput, match="secrets must be sent again, because kind or settings change"):
        await parts.accounts.put(ANN, "mail", elsewhere)
    removed = await parts.accounts.put(ANN, "mail", msgspec.structs.replace(elsewhere, secrets={}))
    assert removed.secret_names == ()


async def test_a_put_clears_the_fault_of_an_account(parts: NotificationParts) -> None:
    before = await parts.store.provider_accounts.find(TENANT, "mail")
    assert before is not None
    await parts.store.provider_accounts.stop(TENANT, "mail", before.version, "wrong password", NOW_MS + MINUTE)
    stopped = await parts.accounts.get(ANN, "mail")
    assert (stopped.fault, stopped.fault_at) == ("wrong password", instant(NOW_MS + MINUTE))
    assert (await parts.accounts.put(ANN, "mail", SMTP)).fault is None
    assert (await parts.accounts.get(ANN, "mail")).fault is None
