"""Derived status of a notification: a pure function of its row, its events, the decisions about it, and the time.

The status is never stored. Events arrive late, repeated and in any order, and the highest status that anything says wins. So a
receipt may be recorded before the send that it is about.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from noonday.model.notifications.notification import (
    MINUTE_MS,
    OPEN_STATUSES,
    DecisionKind,
    DispatchDecision,
    EventDetail,
    EventKind,
    NotificationStatus,
)

NOT_SENT = "it was not sent before it expired"
_RANKS = {status: rank for rank, status in enumerate(NotificationStatus)}
_FINAL_STATUSES = {
    kind: NotificationStatus(kind)
    for kind in EventKind
    if kind in NotificationStatus.__members__ and NotificationStatus(kind) not in OPEN_STATUSES
}
"""The final status that an event of a kind gives. Other kinds give none."""


class OpenedEvent(msgspec.Struct, frozen=True):
    """An event of a notification, with its detail decrypted."""

    name: str
    at_ms: int
    kind: EventKind
    number: int
    detail: EventDetail


class StoredDispatch(NamedTuple):
    """Number and time of the dispatch that a notification's row has."""

    number: int
    scheduled_ms: int


class DerivedStatus(NamedTuple):
    """Status of a notification, and why."""

    status: NotificationStatus
    reason: str | None

    @property
    def is_final(self) -> bool:
        """Return whether no further call follows. Receipts may still raise the status."""
        return self.status not in OPEN_STATUSES


class _NextDispatch(NamedTuple):
    """The dispatch that was made last, as far as is known. A tuple with a higher number is greater."""

    number: int
    due_ms: int
    reason: str | None


def status_of(
    send_ms: int,
    expires_ms: int,
    row: StoredDispatch | None,
    events: Sequence[OpenedEvent],
    decisions: Iterable[DispatchDecision],
    now_ms: int,
    recorded_ms: int,
) -> DerivedStatus:
    """Return the status of an accepted notification.

    `recorded_ms`: everything that was reported up to this instant is among the events. A notification that should have been
    sent is EXPIRED only when a report of its send could not be missing any more.
    """
    latest = _latest_dispatch(send_ms, row, events)
    claims = [_open_status(latest, expires_ms, now_ms, recorded_ms)]
    if any(each.kind is DecisionKind.CANCELLED and each.number >= latest.number for each in decisions):
        claims.append(DerivedStatus(NotificationStatus.CANCELLED, None))
    claims += [
        DerivedStatus(_FINAL_STATUSES[event.kind], event.detail.reason)
        for event in events
        if event.kind in _FINAL_STATUSES
    ]
    # Of two events with the same status the reason is chosen by its text, so that their order does not matter.
    return max(claims, key=lambda claim: (_RANKS[claim.status], claim.reason or ""))


def has_final_event(events: Iterable[OpenedEvent]) -> bool:
    """Return whether an event makes the status final, so that the row adds nothing."""
    return any(event.kind in _FINAL_STATUSES for event in events)


def _latest_dispatch(send_ms: int, row: StoredDispatch | None, events: Iterable[OpenedEvent]) -> _NextDispatch:
    latest = _NextDispatch(1, send_ms, None)
    for event in events:
        if event.kind in (EventKind.DEFERRED, EventKind.FELL_BACK):
            due_ms = event.at_ms if event.detail.until_ms is None else event.detail.until_ms
            following = _NextDispatch(event.number + 1, due_ms, event.detail.reason)
            latest = max(latest, following, key=lambda each: (each.number, each.due_ms, each.reason or ""))
    if row is not None and row.number >= latest.number:
        reason = latest.reason if row.number == latest.number else None
        return _NextDispatch(row.number, row.scheduled_ms, reason)
    return latest


def _open_status(latest: _NextDispatch, expires_ms: int, now_ms: int, recorded_ms: int) -> DerivedStatus:
    if recorded_ms >= expires_ms + MINUTE_MS:
        return DerivedStatus(NotificationStatus.EXPIRED, latest.reason or NOT_SENT)
    if latest.due_ms <= now_ms:
        return DerivedStatus(NotificationStatus.QUEUED, latest.reason)
    waiting = NotificationStatus.SCHEDULED if latest.number == 1 else NotificationStatus.DEFERRED
    return DerivedStatus(waiting, latest.reason)
