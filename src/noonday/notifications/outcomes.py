"""What is known about dispatches: whether one has ended, and who decided about it."""

from collections.abc import Mapping, Sequence

from noonday.model.notifications.notification import (
    DecisionKind,
    DispatchDecision,
    DispatchKey,
    EventKind,
    NotificationEvent,
    NotificationId,
)
from noonday.model.notifications.schedule import ScheduledRow
from noonday.ports.notifications import NotificationEvents

LATER = frozenset({EventKind.DEFERRED, EventKind.FELL_BACK})
"""The dispatch has ended, and another one follows."""
LOOKED_UP_AT_ONCE = 500


def has_ended(events: Sequence[NotificationEvent], number: int) -> bool:
    """Return whether a dispatch has an outcome: an event of its own, or any event that ended the notification."""
    return any(
        event.kind is not EventKind.ACCEPTED and (event.number >= number or event.kind not in LATER) for event in events
    )


class Outcomes:
    """Looks up events and decisions of rows."""

    def __init__(self, events: NotificationEvents) -> None:
        self._events = events

    async def ended(self, rows: Sequence[ScheduledRow]) -> set[DispatchKey]:
        """Return those dispatches that have an outcome or were decided against."""
        ended: set[DispatchKey] = set()
        for start in range(0, len(rows), LOOKED_UP_AT_ONCE):
            part = rows[start : start + LOOKED_UP_AT_ONCE]
            events = await self._events.events_of({(row.tenant, row.id) for row in part})
            decisions = await self._events.decisions_of({key_of(row) for row in part})
            ended |= {key_of(row) for row in part if _is_over(row, events, decisions)}
        return ended

    async def publish_or_not(self, row: ScheduledRow) -> bool:
        """Decide that a dispatch is published, unless somebody has cancelled or replaced it."""
        decision = await self._events.decide(DispatchDecision(row.tenant, row.id, row.number, DecisionKind.PUBLISHED))
        return decision.kind is DecisionKind.PUBLISHED


def key_of(row: ScheduledRow) -> DispatchKey:
    return row.tenant, row.id, row.number


def _is_over(
    row: ScheduledRow,
    events: Mapping[NotificationId, Sequence[NotificationEvent]],
    decisions: Mapping[DispatchKey, DispatchDecision],
) -> bool:
    decision = decisions.get(key_of(row))
    if decision is not None and decision.kind is not DecisionKind.PUBLISHED:
        return True
    return has_ended(events.get(row.id, ()), row.number)
