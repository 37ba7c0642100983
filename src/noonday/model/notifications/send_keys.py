"""Send keys: who may send, when several dispatches or notifications have the same key."""

from enum import StrEnum

import msgspec

from noonday.model.notifications.notification import DAY_MS, MOST_EXPIRY_MS, NotificationId

HELD_MS = MOST_EXPIRY_MS + DAY_MS
"""How long a key is held that was taken and neither sent nor released. A notification that took it has expired a day before."""


class KeyTake(StrEnum):
    """Result of taking a send key for one dispatch of a notification."""

    TAKEN = "TAKEN"
    """This dispatch may call a provider."""
    BUSY = "BUSY"
    """Another notification with the key is being sent: wait for its outcome."""
    SENT = "SENT"
    """Another notification with the key was sent within its window: this one is a duplicate."""
    SENT_BEFORE = "SENT_BEFORE"
    """This notification was sent, or a later dispatch of it has the key: this delivery comes too late."""
    UNKNOWN = "UNKNOWN"
    """An earlier delivery of this dispatch took the key and did not end: it may have called a provider."""


class HeldKey(msgspec.Struct, frozen=True):
    """A send key that a notification has."""

    notification_id: NotificationId
    number: int
    """Number of the dispatch that took the key."""
    sent: bool
    """False: the dispatch may be calling a provider."""
    until_ms: int
    """When the key is free again."""


def judge_take(held: HeldKey | None, notification: NotificationId, number: int, now_ms: int) -> KeyTake:
    """Return the result of taking a key that is held, or None if nobody has it."""
    if held is None or held.until_ms <= now_ms:
        return KeyTake.TAKEN
    if held.notification_id != notification:
        return KeyTake.SENT if held.sent else KeyTake.BUSY
    if held.sent:
        return KeyTake.SENT_BEFORE
    if held.number > number:
        return KeyTake.SENT_BEFORE  # a later dispatch exists, so this one has ended
    return KeyTake.TAKEN if held.number < number else KeyTake.UNKNOWN
