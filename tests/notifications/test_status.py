"""The derived status of a notification: a pure function of its row, its events, the decisions, and the time."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonday.model.notifications.notification import (
    OPEN_STATUSES,
    DecisionKind,
    DispatchDecision,
    EventDetail,
    EventKind,
    NotificationId,
    NotificationStatus,
)
from noonday.model.notifications.status import (
    NOT_SENT,
    DerivedStatus,
    OpenedEvent,
    StoredDispatch,
    has_final_event,
    status_of,
)
from tests.support.factories import DAY, HOUR, MINUTE, NOW_MS

SEND_MS, EXPIRES_MS = NOW_MS + HOUR, NOW_MS + DAY
ID = NotificationId("01a230d5-1280-81a7-9c1e-5b2f6d8e9a01")
RANKS = list(NotificationStatus)


def event(kind: EventKind, number: int = 1, reason: str | None = None, **fields: Any) -> OpenedEvent:
    at_ms = fields.pop("at_ms", SEND_MS)
    return OpenedEvent(f"{kind}/{number}", at_ms, kind, number, EventDetail(reason=reason, **fields))


def cancelled(number: int, kind: DecisionKind = DecisionKind.CANCELLED) -> DispatchDecision:
    return DispatchDecision("acme", ID, number, kind)


def derived(
    *events: OpenedEvent,
    now_ms: int = NOW_MS,
    recorded_ms: int | None = None,
    row: StoredDispatch | None = None,
    decisions: Sequence[DispatchDecision] = (),
) -> DerivedStatus:
    recorded = now_ms if recorded_ms is None else recorded_ms
    return status_of(SEND_MS, EXPIRES_MS, row, events, decisions, now_ms, recorded)


def test_a_notification_is_scheduled_until_its_time_and_queued_from_then_on() -> None:
    assert derived(event(EventKind.ACCEPTED, 0)).status is NotificationStatus.SCHEDULED
    assert derived(now_ms=SEND_MS - 1).status is NotificationStatus.SCHEDULED
    assert derived(now_ms=SEND_MS).status is NotificationStatus.QUEUED


def test_the_row_says_when_a_notification_is_due() -> None:
    moved = StoredDispatch(1, SEND_MS + MINUTE)
    assert derived(now_ms=SEND_MS, row=moved).status is NotificationStatus.SCHEDULED
    assert derived(now_ms=SEND_MS + MINUTE, row=moved).status is NotificationStatus.QUEUED


def test_a_deferred_notification_is_queued_when_its_next_dispatch_is_due() -> None:
    first = event(EventKind.DEFERRED, 1, "busy", until_ms=SEND_MS + HOUR)
    assert derived(first, now_ms=SEND_MS) == (NotificationStatus.DEFERRED, "busy")
    assert derived(first, now_ms=SEND_MS + HOUR).status is NotificationStatus.QUEUED


def test_the_deferral_with_the_highest_number_counts() -> None:
    first = event(EventKind.DEFERRED, 1, "busy", until_ms=SEND_MS + HOUR)
    second = event(EventKind.DEFERRED, 2, "still busy", until_ms=SEND_MS + 2 * HOUR)
    assert derived(second, first, now_ms=SEND_MS + HOUR) == (NotificationStatus.DEFERRED, "still busy")


def test_a_row_that_is_older_than_the_last_deferral_says_nothing() -> None:
    first = event(EventKind.DEFERRED, 1, until_ms=SEND_MS + HOUR)
    assert derived(first, now_ms=SEND_MS, row=StoredDispatch(1, SEND_MS)).status is NotificationStatus.DEFERRED
    later = StoredDispatch(2, SEND_MS + 2 * HOUR)
    assert derived(first, now_ms=SEND_MS + HOUR, row=later).status is NotificationStatus.DEFERRED


def test_a_notification_that_falls_back_to_another_channel_is_queued() -> None:
    assert derived(event(EventKind.FELL_BACK, 1, at_ms=SEND_MS), now_ms=SEND_MS).status is NotificationStatus.QUEUED


def test_a_notification_expires_only_when_its_report_could_not_be_missing() -> None:
    late = EXPIRES_MS + MINUTE
    assert derived(now_ms=late, recorded_ms=late - 1).status is NotificationStatus.QUEUED
    assert derived(now_ms=late) == (NotificationStatus.EXPIRED, NOT_SENT)
    assert derived(event(EventKind.SENT), now_ms=late).status is NotificationStatus.SENT


def test_a_cancel_counts_for_the_last_dispatch_only() -> None:
    assert derived(decisions=[cancelled(1)]).status is NotificationStatus.CANCELLED
    assert derived(decisions=[cancelled(1, DecisionKind.PUBLISHED)]).status is NotificationStatus.SCHEDULED
    edited = [cancelled(1, DecisionKind.EDITED)]
    row = StoredDispatch(2, SEND_MS)
    assert derived(decisions=edited, row=row).status not in (NotificationStatus.CANCELLED, NotificationStatus.SENT)
    assert derived(decisions=[cancelled(1)], row=row).status is not NotificationStatus.CANCELLED


def test_a_receipt_may_come_before_the_send_is_recorded() -> None:
    delivered, sent = event(EventKind.DELIVERED), event(EventKind.SENT)
    assert derived(delivered).status is derived(sent, delivered).status is NotificationStatus.DELIVERED
    assert derived(event(EventKind.BOUNCED), delivered).status is NotificationStatus.BOUNCED


def test_opens_and_clicks_change_no_status() -> None:
    both = [event(EventKind.OPENED), event(EventKind.CLICKED)]
    assert derived(*both).status is NotificationStatus.SCHEDULED
    assert derived(event(EventKind.SENT), *both).status is NotificationStatus.SENT


def test_the_reason_is_that_of_the_event_that_decides() -> None:
    failed = event(EventKind.FAILED, 1, "the user has no email address")
    assert derived(event(EventKind.DEFERRED, 1, "busy"), failed).reason == "the user has no email address"
    assert derived(failed, event(EventKind.SENT, 2)).reason is None


@pytest.mark.parametrize("status", NotificationStatus)
def test_a_status_is_final_unless_a_call_may_follow(status: NotificationStatus) -> None:
    assert DerivedStatus(status, None).is_final == (status not in OPEN_STATUSES)


EVENTS = st.lists(
    st.builds(
        event,
        st.sampled_from(EventKind),
        st.integers(1, 3),
        st.sampled_from((None, "busy", "no address")),
        until_ms=st.sampled_from((None, SEND_MS, SEND_MS + HOUR, EXPIRES_MS)),
        at_ms=st.integers(SEND_MS, SEND_MS + 3),
    ),
    max_size=6,
)
TIMES = st.sampled_from((NOW_MS, SEND_MS, SEND_MS + HOUR, EXPIRES_MS, EXPIRES_MS + MINUTE))
ROWS = st.none() | st.builds(StoredDispatch, st.integers(1, 3), st.sampled_from((SEND_MS, SEND_MS + HOUR)))
DECISIONS = st.lists(st.builds(cancelled, st.integers(1, 3), st.sampled_from(DecisionKind)), max_size=3)


@given(EVENTS, ROWS, DECISIONS, TIMES, st.randoms())
def test_the_order_and_repeats_of_events_do_not_matter(
    events: list[OpenedEvent], row: StoredDispatch | None, decisions: list[DispatchDecision], now_ms: int, random: Any
) -> None:
    mixed = [*events, *events[:2]]
    random.shuffle(mixed)
    assert derived(*mixed, now_ms=now_ms, row=row, decisions=decisions[::-1]) == derived(
        *events, now_ms=now_ms, row=row, decisions=decisions
    )


@given(EVENTS, EVENTS, ROWS, TIMES)
def test_a_final_status_never_falls(
    events: list[OpenedEvent], more: list[OpenedEvent], row: StoredDispatch | None, now_ms: int
) -> None:
    before, after = derived(*events, now_ms=now_ms, row=row), derived(*events, *more, now_ms=now_ms, row=row)
    if before.is_final:
        assert RANKS.index(after.status) >= RANKS.index(before.status)


@given(EVENTS, ROWS, ROWS, TIMES)
def test_the_row_does_not_matter_once_an_event_is_final(
    events: list[OpenedEvent], row: StoredDispatch | None, other: StoredDispatch | None, now_ms: int
) -> None:
    if has_final_event(events):
        assert derived(*events, now_ms=now_ms, row=row) == derived(*events, now_ms=now_ms, row=other)
