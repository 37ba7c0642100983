"""Valid rows and events of notifications, with defaults. A test states only what matters to it."""

from itertools import count
from typing import Any

from noonday.model.notifications.notification import EventKind, NotificationEvent, NotificationId
from noonday.model.notifications.schedule import Bucket, ScheduledRow
from noonday.model.notifications.sending import ChannelKind
from tests.support.factories import DAY, MINUTE, NOW_MS, TENANT

NOW_MINUTE = NOW_MS // MINUTE
BUCKET = Bucket(NOW_MINUTE, 1, "", 0)

_serial = count(1)


def notification_id() -> NotificationId:
    """Ids that are made later sort after earlier ones."""
    return NotificationId(f"01900000-0000-8100-8000-{next(_serial):012x}")


def scheduled_row(**fields: Any) -> ScheduledRow:
    """A row that is due at once by default."""
    return ScheduledRow(
        **{
            "bucket": BUCKET,
            "scheduled_ms": NOW_MS,
            "id": notification_id(),
            "number": 1,
            "tenant": TENANT,
            "user_id": "sam",
            "channel": ChannelKind.EMAIL,
            "data": b"ciphertext\x00",
            "created_ms": NOW_MS - DAY,
            "expires_ms": NOW_MS + DAY,
            **fields,
        }
    )


def notification_event(notification: NotificationId, **fields: Any) -> NotificationEvent:
    """The event that a provider took the first dispatch."""
    return NotificationEvent(
        **{
            "tenant": TENANT,
            "notification_id": notification,
            "name": "SENT/1/main",
            "at_ms": NOW_MS,
            "kind": EventKind.SENT,
            "number": 1,
            "detail": b"ciphertext\x00",
            **fields,
        }
    )
