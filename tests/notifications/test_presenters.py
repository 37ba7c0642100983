"""Views of notifications: events in their order, and the status that follows from them."""

from typing import Any

import pytest

from noonday.model.notifications.notification import (
    EventDetail,
    EventKind,
    NotificationPriority,
    NotificationStatus,
)
from noonday.model.notifications.sending import ChannelKind
from noonday.model.notifications.status import OpenedEvent
from noonday.model.notifications.wire import NotificationContent, NotificationSpec
from noonday.notifications.presenters import NotificationRecord, accepted_view, notification_view
from noonday.notifications.translating import notification_of
from tests.support.factories import DAY, HOUR, NOW_MS, TENANT, instant


def record(*events: OpenedEvent) -> NotificationRecord:
    return NotificationRecord(
        id="01a230d5-1280-81a7-9c1e-5b2f6d8e9a01",
        user_id="u-17",
        channels=(ChannelKind.SMS, ChannelKind.EMAIL),
        priority=NotificationPriority.HIGH,
        send_ms=NOW_MS,
        expires_ms=NOW_MS + DAY,
        row=None,
        events=events,
        decisions=(),
    )


def event(kind: EventKind, at_ms: int, number: int = 1, **detail: Any) -> OpenedEvent:
    return OpenedEvent(f"{kind}/{number}", at_ms, kind, number, EventDetail(**detail))


def test_events_are_shown_by_time_and_then_by_name() -> None:
    sent = event(EventKind.SENT, NOW_MS + 1, channel=ChannelKind.SMS, provider="twilio", provider_id="SM1")
    shuffled = record(sent, event(EventKind.DELIVERED, NOW_MS + 1), event(EventKind.ACCEPTED, NOW_MS, 0))
    view = notification_view(shuffled, shuffled.derive(NOW_MS, NOW_MS))
    assert [each.kind for each in view.events] == ["ACCEPTED", "DELIVERED", "SENT"]
    last = view.events[-1]
    assert (last.at, last.channel, last.provider, last.provider_id) == (instant(NOW_MS + 1), "SMS", "twilio", "SM1")
    assert (view.status, view.final, view.priority) == (NotificationStatus.DELIVERED, True, "HIGH")


def test_the_reason_of_a_failure_is_shown_with_the_notification_and_its_event() -> None:
    failed = record(event(EventKind.FAILED, NOW_MS, reason="the user has no phone number"))
    view = notification_view(failed, failed.derive(NOW_MS, NOW_MS))
    assert view.reason == view.events[0].detail == "the user has no phone number"


@pytest.mark.parametrize(("ahead_ms", "status"), [(0, "QUEUED"), (1, "SCHEDULED"), (HOUR, "SCHEDULED")])
def test_an_accepted_notification_is_queued_if_it_is_due(ahead_ms: int, status: str) -> None:
    spec = NotificationSpec(
        user_id="u-17",
        channels=(ChannelKind.SMS,),
        content=NotificationContent(text="t"),
        scheduled_at=instant(NOW_MS + ahead_ms),
    )
    view = accepted_view(notification_of(spec, TENANT, None, None, NOW_MS), NOW_MS)
    assert (view.status, view.send_at) == (status, instant(NOW_MS + ahead_ms))
