"""Delete what notifications no longer need: closed buckets after a day, ended keys, and old events."""

from noonday.model.ids import PARTITIONS
from noonday.model.notifications.notification import DAY_MS, MINUTE_MS
from noonday.notifications.poller import KEPT_CLOSED_MS, OLDEST_MS
from noonday.ports.notifications import NotificationEvents, ScheduledNotifications, SendKeys

AT_ONCE = 1_000
"""Rows that one statement deletes, and buckets that one round examines."""


class NotificationHousekeeper:
    """Deletes in rounds, so that no round blocks the stores for long."""

    def __init__(
        self, scheduled: ScheduledNotifications, events: NotificationEvents, send_keys: SendKeys, *, retention_ms: int
    ) -> None:
        self._scheduled = scheduled
        self._events = events
        self._send_keys = send_keys
        self._retention_ms = retention_ms
        self._examined_minute = 0
        """Last minute whose closed buckets were all deleted."""

    async def run_once(self, now_ms: int) -> int:
        """Run one round. Returns how much was deleted, or 0 if nothing is left to delete."""
        dropped = await self._drop_buckets(now_ms)
        keys = await self._send_keys.prune(now_ms, AT_ONCE)
        events = await self._events.prune(now_ms - self._retention_ms, AT_ONCE)
        has_more = dropped > 0 or AT_ONCE in (keys, events)
        return dropped + keys + events if has_more else 0

    async def _drop_buckets(self, now_ms: int) -> int:
        """Drop the closed buckets of a part of the minutes that are old enough. A bucket that is not closed is kept."""
        last = (now_ms - KEPT_CLOSED_MS) // MINUTE_MS
        first = max(self._examined_minute + 1, (now_ms - OLDEST_MS - DAY_MS) // MINUTE_MS)
        if first > last:
            return 0
        last = min(last, first + AT_ONCE)
        found = [each.bucket for each in await self._scheduled.buckets(range(PARTITIONS), first, last)]
        progress = await self._scheduled.progress(found)
        closed = [bucket for bucket in found if bucket in progress and progress[bucket].closed]
        for bucket in closed:
            await self._scheduled.drop(bucket)
        if len(closed) == len(found):
            self._examined_minute = last
        return len(closed)
