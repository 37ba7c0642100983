"""Requests become notifications: times, expiry, ids and send keys, and every flaw with its place."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonday.model.errors import InvalidInput
from noonday.model.notifications.notification import DAY_MS, Notification
from noonday.model.notifications.sending import ChannelKind
from noonday.model.notifications.wire import IfPast, NotificationContent, NotificationSpec
from noonday.model.schedule import CronRule
from noonday.notifications.translating import CONTENT_BYTES, DATA_BYTES, notification_of
from tests.support.factories import HOUR, MINUTE, NOW_MS, SECOND, TENANT, instant

EMAIL, SMS, PUSH = ChannelKind.EMAIL, ChannelKind.SMS, ChannelKind.PUSH
SOON = instant(NOW_MS + HOUR)


def spec(**fields: Any) -> NotificationSpec:
    content = NotificationContent(title="Shipped", text="Order A-17 is on its way")
    return NotificationSpec(**{"user_id": "u-17", "channels": (EMAIL,), "content": content, **fields})


def made(key: str | None = None, zone: str | None = None, now_ms: int = NOW_MS, **fields: Any) -> Notification:
    return notification_of(spec(**fields), TENANT, key, zone, now_ms)


def flaws(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as refused:
        made(**fields)
    return {flaw.pointer: flaw.detail for flaw in refused.value.flaws}


def test_a_notification_without_a_time_is_sent_now_and_expires_in_a_day() -> None:
    now = made()
    assert (now.send_ms, now.expires_ms, now.created_ms) == (NOW_MS, NOW_MS + DAY_MS, NOW_MS)
    assert (now.tenant, now.user_id, now.channels, now.content.title) == (TENANT, "u-17", (EMAIL,), "Shipped")


def test_the_expiry_counts_from_the_send_time() -> None:
    assert made(scheduled_at=SOON).expires_ms == NOW_MS + HOUR + DAY_MS
    assert made(scheduled_at=SOON, expires_at=instant(NOW_MS + 2 * HOUR)).expires_ms == NOW_MS + 2 * HOUR


@pytest.mark.parametrize("times", [{}, {"scheduled_at": SOON}, {"scheduled_at": instant(NOW_MS - SECOND)}])
def test_the_same_key_and_time_give_the_same_id_whatever_the_body_says(times: dict[str, Any]) -> None:
    first = made("k", **times)
    again = made("k", now_ms=NOW_MS + 5, user_id="u-18", **times)
    assert first.id == again.id
    assert first.send_key == again.send_key
    assert made("other", **times).id != first.id
    assert made(None, **times).id != made(None, **times).id


def test_another_time_gives_another_id_and_the_same_send() -> None:
    first, later = made("k", scheduled_at=SOON), made("k", scheduled_at=instant(NOW_MS + 2 * HOUR))
    assert first.id != later.id
    assert first.send_key == later.send_key
    assert first.key_window_ms == DAY_MS


def test_a_dedupe_key_names_the_send_of_one_user() -> None:
    first, second = made("k", dedupe_key="d"), made("l", dedupe_key="d", dedupe_seconds=60)
    assert first.send_key == second.send_key
    assert made(dedupe_key="d", user_id="u-18").send_key != first.send_key
    assert (first.key_window_ms, second.key_window_ms) == (DAY_MS, 60_000)


def test_without_any_key_a_notification_is_its_own_send() -> None:
    first, second = made(), made()
    assert first.send_key != second.send_key
    assert first.key_window_ms == 0


def test_a_time_that_has_just_passed_is_accepted() -> None:
    assert made(scheduled_at=instant(NOW_MS - MINUTE)).send_ms == NOW_MS - MINUTE


def test_a_time_that_has_passed_names_the_time_of_the_server() -> None:
    found = flaws(scheduled_at=instant(NOW_MS - MINUTE - 1))
    assert "the server's time is 2030-01-01T00:00:00.000Z" in found["/scheduled_at"]
    assert "if_past" in found["/scheduled_at"]


def test_if_past_sends_it_now() -> None:
    late = made(scheduled_at=instant(NOW_MS - DAY_MS), if_past=IfPast.SEND)
    assert (late.send_ms, late.expires_ms) == (NOW_MS, NOW_MS + DAY_MS)


def test_a_time_over_a_year_ahead_is_refused() -> None:
    assert made(scheduled_at=instant(NOW_MS + 366 * DAY_MS)).send_ms == NOW_MS + 366 * DAY_MS
    assert "a year ahead" in flaws(scheduled_at=instant(NOW_MS + 366 * DAY_MS + 1))["/scheduled_at"]


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_times_in_odd_years_are_refused(year: int) -> None:
    assert flaws(scheduled_at=datetime(year, 1, 1, tzinfo=UTC)).keys() == {"/scheduled_at"}
    assert flaws(expires_at=datetime(year, 12, 31, tzinfo=UTC)).keys() == {"/expires_at"}
    assert flaws(local_time=f"{year:04}-01-01T09:00").keys() == {"/local_time"}


def test_both_times_are_refused() -> None:
    assert flaws(scheduled_at=SOON, local_time="2030-01-01T09:00").keys() == {"/local_time"}


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2030-01-01T09:00", "2030-01-01T08:00:00+00:00"),
        ("2030-07-01T09:00:30", "2030-07-01T07:00:30+00:00"),
        ("2030-03-31T02:30", "2030-03-31T01:30:00+00:00"),  # the clocks skip it: 03:30
        ("2030-10-27T02:30", "2030-10-27T00:30:00+00:00"),  # the clocks show it twice: the first time
    ],
)
def test_a_local_time_is_in_the_zone_of_the_user(local: str, utc: str) -> None:
    assert made(zone="Europe/Berlin", local_time=local).send_ms == datetime.fromisoformat(utc).timestamp() * 1000


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]
)
def test_a_local_time_follows_the_rule_of_jobs_when_the_clocks_change(zone: str) -> None:
    day = datetime(2030, 1, 1, tzinfo=UTC)
    while day < datetime(2030, 12, 31, tzinfo=UTC):
        rule = CronRule(f"30 2 {day.day} {day.month} *", zone)
        midnight_ms = int(day.timestamp() * 1000)
        (expected,) = rule.take(midnight_ms - DAY_MS, 1)
        assert made(zone=zone, now_ms=midnight_ms - DAY_MS, local_time=f"{day:%Y-%m-%d}T02:30").send_ms == expected
        day += timedelta(days=1)


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2030-02-30T09:00", "2030-01-01 09:00", "2030-01-01T09:00Z", "2030-01-01T25:00"]
)
def test_a_malformed_local_time_is_refused(text: str) -> None:
    assert flaws(local_time=text).keys() == {"/local_time"}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"user_id": ""}, "/user_id"),
        ({"user_id": "a/b"}, "/user_id"),
        ({"user_id": ".."}, "/user_id"),
        ({"user_id": "a\nb"}, "/user_id"),
        ({"user_id": "a\x00"}, "/user_id"),
        ({"user_id": "x" * 256}, "/user_id"),
        ({"channels": (EMAIL, SMS, EMAIL)}, "/channels/2"),
        ({"expires_at": instant(NOW_MS)}, "/expires_at"),
        ({"expires_at": instant(NOW_MS + 7 * DAY_MS + 1)}, "/expires_at"),
        ({"scheduled_at": SOON, "expires_at": SOON}, "/expires_at"),
        ({"dedupe_key": ""}, "/dedupe_key"),
        ({"dedupe_key": "x" * 256}, "/dedupe_key"),
        ({"dedupe_seconds": 60}, "/dedupe_seconds"),
        ({"content": NotificationContent(title="a\nBcc: b@example.com", text="t")}, "/content/title"),
        ({"content": NotificationContent(title="x" * 1_001, text="t")}, "/content/title"),
        ({"content": NotificationContent(text="a\0b")}, "/content/text"),
        ({"content": NotificationContent(text="x" * CONTENT_BYTES)}, "/content"),
        ({"content": NotificationContent(text="t", data={"x": "x" * DATA_BYTES})}, "/content/data"),
        ({"content": NotificationContent()}, "/content"),
        ({"content": NotificationContent(title="only")}, "/content"),
        ({"channels": (EMAIL, SMS), "content": NotificationContent(html="<p>only</p>")}, "/content"),
        ({"channels": (PUSH,), "content": NotificationContent(html="<p>only</p>")}, "/content"),
    ],
)
def test_invalid_request_is_refused_at_its_place(fields: dict[str, Any], pointer: str) -> None:
    assert flaws(**fields).keys() == {pointer}


def test_deeply_nested_data_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    assert "nested" in flaws(content=NotificationContent(text="t", data=deep))["/content/data"]


def test_every_flaw_is_named_at_once() -> None:
    found = flaws(user_id="", scheduled_at=instant(0), expires_at=instant(1), dedupe_seconds=5)
    assert found.keys() == {"/user_id", "/scheduled_at", "/dedupe_seconds"}


def test_a_single_flaw_is_a_sentence_with_its_field() -> None:
    with pytest.raises(InvalidInput) as refused:
        made(dedupe_key="")
    assert refused.value.detail == "dedupe_key must have 1 to 255 characters"


@pytest.mark.parametrize("channels", [(PUSH,), (EMAIL,), (SMS,), (PUSH, SMS, EMAIL)])
def test_content_with_a_text_suits_every_channel(channels: tuple[ChannelKind, ...]) -> None:
    assert made(channels=channels, content=NotificationContent(text="t")).channels == channels
