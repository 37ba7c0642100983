"""Queries of notifications: one by its id, and those of a user."""

import re
from collections.abc import Callable, Mapping, Sequence

from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput, NotFound
from noonday.model.ids import TenantId, is_id
from noonday.model.notifications.notification import (
    EventDetail,
    EventKind,
    NotificationEvent,
    NotificationId,
    NotificationStatus,
)
from noonday.model.notifications.schedule import ScheduledRow
from noonday.model.notifications.status import OpenedEvent, StoredDispatch, has_final_event
from noonday.model.notifications.wire import NotificationPage, NotificationSummary, NotificationView
from noonday.notifications.dispatching import Sealer
from noonday.notifications.presenters import NotificationRecord, notification_view, summary_view
from noonday.ports.clock import Clock
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications

PART = 100
"""Number of notifications of a user that are read at once."""
MOST_SCANNED = 1_000
"""Number of notifications of a user that one request looks at. A page with a filter may be short and still have a next one."""
_CURSOR = re.compile(r"([0-9]{1,15})_([0-9a-f-]{36})")
_Position = tuple[int, NotificationId]


class NotificationQueries:
    """The read side of notifications. A tenant sees its own only."""

    def __init__(
        self,
        scheduled: ScheduledNotifications,
        events: NotificationEvents,
        sealer: Sealer,
        clock: Clock,
        recorded_ms: Callable[[], int] | None = None,
    ) -> None:
        """`recorded_ms` returns the instant up to which all reports are recorded; by default, now."""
        self._scheduled = scheduled
        self._events = events
        self._sealer = sealer
        self._clock = clock
        self._recorded_ms = recorded_ms or clock.now_ms

    async def get(self, caller: Caller, notification: str) -> NotificationView:
        """Return a notification with its status and its events. Raises NotFound."""
        id_ = NotificationId(notification)
        found = await self._records(caller.tenant, [id_], always_with_row=True)
        if id_ not in found:
            raise NotFound(f"there is no notification {notification}", notification_id=notification)
        record = found[id_]
        return notification_view(record, record.derive(self._clock.now_ms(), self._recorded_ms()))

    async def list_of_user(
        self,
        caller: Caller,
        user_id: str,
        *,
        status: NotificationStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> NotificationPage:
        """Return a page of the notifications of a user, newest first. Raises InvalidInput for a malformed cursor."""
        after, scanned = _position_of(cursor), 0
        views: list[NotificationSummary] = []
        while scanned < MOST_SCANNED:
            part = await self._events.of_user(caller.tenant, user_id, after, PART)
            scanned += len(part)
            summaries = await self._summaries(caller.tenant, [id_ for _, id_ in part])
            for position in part:
                after = position
                summary = summaries.get(position[1])
                if summary is not None and status in (None, summary.status):
                    views.append(summary)
                if len(views) == limit:
                    return NotificationPage(notifications=tuple(views), next=_cursor_of(after))
            if len(part) < PART:
                return NotificationPage(notifications=tuple(views))
        return NotificationPage(notifications=tuple(views), next=after and _cursor_of(after))

    async def _summaries(
        self, tenant: TenantId, ids: Sequence[NotificationId]
    ) -> Mapping[NotificationId, NotificationSummary]:
        records = await self._records(tenant, ids)
        now_ms, recorded_ms = self._clock.now_ms(), self._recorded_ms()
        return {id_: summary_view(record, record.derive(now_ms, recorded_ms)) for id_, record in records.items()}

    async def _records(
        self, tenant: TenantId, ids: Sequence[NotificationId], *, always_with_row: bool = False
    ) -> Mapping[NotificationId, NotificationRecord]:
        """Return what is known about notifications. One whose acceptance is not recorded, and that has no row, is missing."""
        stored = await self._events.events_of([(tenant, id_) for id_ in ids])
        records = {}
        for id_ in ids:
            events = [self._opened(event) for event in stored.get(id_, ())]
            needs_row = always_with_row or not has_final_event(events) or _acceptance(events) is None
            row = await self._scheduled.find(tenant, id_) if needs_row else None
            if (record := await self._record(tenant, id_, row, events)) is not None:
                records[id_] = record
        return records

    async def _record(
        self, tenant: TenantId, id_: NotificationId, row: ScheduledRow | None, events: Sequence[OpenedEvent]
    ) -> NotificationRecord | None:
        accepted = _acceptance(events) or (self._acceptance_in(row) if row is not None else None)
        if accepted is None or accepted.send_ms is None or accepted.expires_ms is None or accepted.priority is None:
            return None
        keys = [(tenant, id_, number) for number in {1, *(each.number for each in events), row.number if row else 1}]
        decisions = await self._events.decisions_of(keys)
        return NotificationRecord(
            id=id_,
            user_id=accepted.user_id or "",
            channels=accepted.channels,
            priority=accepted.priority,
            send_ms=accepted.send_ms,
            expires_ms=accepted.expires_ms,
            row=StoredDispatch(row.number, row.scheduled_ms) if row is not None else None,
            events=events,
            decisions=list(decisions.values()),
        )

    def _opened(self, event: NotificationEvent) -> OpenedEvent:
        return OpenedEvent(event.name, event.at_ms, event.kind, event.number, self._sealer.open_detail(event))

    def _acceptance_in(self, row: ScheduledRow) -> EventDetail:
        """Return what the request said, from the row: its acceptance may not be recorded yet."""
        notification = self._sealer.open_dispatch(row).notification
        return EventDetail(
            user_id=notification.user_id,
            channels=notification.channels,
            priority=notification.priority,
            send_ms=notification.send_ms,
            expires_ms=notification.expires_ms,
        )


def _acceptance(events: Sequence[OpenedEvent]) -> EventDetail | None:
    return next((event.detail for event in events if event.kind is EventKind.ACCEPTED), None)


def _position_of(cursor: str | None) -> _Position | None:
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None or not is_id(found[2]):
        raise InvalidInput.of("/cursor", "not a cursor of this list: use `next` of its previous page", cursor)
    return int(found[1]), NotificationId(found[2])


def _cursor_of(position: _Position) -> str:
    return f"{position[0]}_{position[1]}"
