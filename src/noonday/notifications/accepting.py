"""Store accepted notifications, so that each is sent at its time."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from noonday.model.errors import StoreUnavailable, Unavailable
from noonday.model.notifications.notification import Notification, NotificationDispatch
from noonday.model.notifications.schedule import ScheduledRow
from noonday.notifications.dispatching import CLOSES_AFTER_MS, Sealer, dispatch_of, moved, row_of
from noonday.notifications.placing import Placing
from noonday.ports.bus import Bus
from noonday.ports.clock import Clock
from noonday.ports.notifications import ScheduledNotifications

LATE_MS = 2_000
"""A row that is acknowledged later than this before its time may be behind the poller: it is published at once, too."""
MARGIN_MS = 10_000
"""A row has to be acknowledged this long before its bucket may be closed."""
TRIES = 3
ROWS_PER_WRITE = 1_000


class Acceptor(ABC):
    """Takes notifications over from the application: what it accepts ends in exactly one final status."""

    @abstractmethod
    async def accept(self, notifications: Sequence[Notification]) -> list[Unavailable | None]:
        """Store notifications. Returns for each the reason why it may not be stored, or None if it is accepted.

        A notification with the id of an earlier one changes nothing.
        """


class StoredAcceptor(Acceptor):
    """Stores every notification, due or not. A notification that is due goes to the topic as well."""

    def __init__(
        self, scheduled: ScheduledNotifications, bus: Bus, clock: Clock, sealer: Sealer, placing: Placing, writer: str
    ) -> None:
        """`writer` names this process among those that announce buckets."""
        self._scheduled = scheduled
        self._bus = bus
        self._clock = clock
        self._sealer = sealer
        self._placing = placing
        self._writer = writer

    async def accept(self, notifications: Sequence[Notification]) -> list[Unavailable | None]:
        answers: list[Unavailable | None] = []
        for start in range(0, len(notifications), ROWS_PER_WRITE):
            part = notifications[start : start + ROWS_PER_WRITE]
            stamp_ms = self._clock.now_ms()
            rows = [self._row(notification, stamp_ms) for notification in part]
            try:
                await self.store(rows, stamp_ms)
            except Unavailable as error:
                answers += [error] * len(rows)
            else:
                answers += [None] * len(rows)
        return answers

    async def store(self, rows: Sequence[ScheduledRow], stamp_ms: int) -> None:
        """Store rows, and publish those that are due. `stamp_ms`: the time before they were made.

        Raises StoreUnavailable, or what the bus raises: some of the rows may be stored.
        """
        for _ in range(TRIES):
            await self._put(rows)
            now_ms = self._clock.now_ms()
            if due := [row for row in rows if row.scheduled_ms < now_ms + LATE_MS]:
                await self._scheduled.mark(due)
                await self._bus.publish([dispatch_of(row, stamp_ms) for row in due])
            # A bucket may be closed by now. What was put into it too late is not stored: it is put into another one.
            too_late = [row for row in rows if now_ms > row.bucket.end_ms + CLOSES_AFTER_MS - MARGIN_MS]
            if not too_late:
                return
            rows = [moved(row, now_ms) for row in too_late]
        raise StoreUnavailable("the store took longer to acknowledge the notification than its bucket is open; retry")

    async def _put(self, rows: Sequence[ScheduledRow]) -> None:
        announced = self._placing.unannounced([row.bucket for row in rows])
        await self._scheduled.put(rows, announced, self._writer)
        self._placing.note_announced(announced)

    def _row(self, notification: Notification, now_ms: int) -> ScheduledRow:
        return row_of(
            NotificationDispatch(notification=notification),
            1,
            max(notification.send_ms, now_ms),
            now_ms,
            self._placing,
            self._sealer,
        )
