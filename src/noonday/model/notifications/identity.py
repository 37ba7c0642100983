"""Ids of notifications: a UUID of version 8 that holds the send time and the stream, and keys that name a send."""

import os
from hashlib import blake2b

from noonday.model.notifications.notification import NotificationId, NotificationPriority
from noonday.model.notifications.sending import ChannelKind

STREAMS = 9
KEYED_AT_ONCE = 15
"""Stream of an immediate notification with an Idempotency-Key. Its id has a hash in place of the time."""
_48_BITS = (1 << 48) - 1
_CHANNELS = tuple(ChannelKind)
_LANES = {
    NotificationPriority.CRITICAL: 0,
    NotificationPriority.HIGH: 0,
    NotificationPriority.NORMAL: 1,
    NotificationPriority.LOW: 2,
}


def stream_of(channel: ChannelKind, priority: NotificationPriority) -> int:
    """Return the stream of a channel and a priority, from 0 to 8."""
    return _CHANNELS.index(channel) * 3 + _LANES[priority]


def lane_of(stream: int) -> int:
    """Return the lane of a stream: 0 for HIGH, 1 for NORMAL, 2 for LOW."""
    return stream % 3


def channel_of(stream: int) -> ChannelKind:
    """Return the channel of a stream."""
    return _CHANNELS[stream // 3]


def new_notification_id(tenant: str, send_ms: int, stream: int, key: str | None, *, at_once: bool) -> NotificationId:
    """Return the id of a notification: 48 bits of time, 4 of stream, 70 of hash.

    With an Idempotency-Key the id depends on the arguments only. Without one the hash is random. An immediate notification with a
    key has a hash in place of its time, which a repeat does not share.
    """
    if key is None:
        return _id(send_ms, stream, os.urandom(9))
    if at_once:
        digest = blake2b(f"{len(tenant)}:{tenant}:{key}".encode(), digest_size=15).digest()
        return _id(int.from_bytes(digest[:6], "big"), KEYED_AT_ONCE, digest[6:])
    digest = blake2b(f"{len(tenant)}:{tenant}:{send_ms}:{stream}:{key}".encode(), digest_size=9).digest()
    return _id(send_ms, stream, digest)


def send_key(tenant: str, user_id: str, dedupe_key: str | None, key: str | None, notification_id: str) -> str:
    """Return the name of a send: the dedupe key of a user, else the Idempotency-Key, else the notification itself."""
    if dedupe_key is not None:
        text = f"user:{len(tenant)}:{tenant}:{len(user_id)}:{user_id}:{dedupe_key}"
    elif key is not None:
        text = f"key:{len(tenant)}:{tenant}:{key}"
    else:
        text = f"id:{notification_id}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _id(time: int, stream: int, rest: bytes) -> NotificationId:
    value = int.from_bytes(rest, "big") & ((1 << 70) - 1)
    high, low = value >> 62, value & ((1 << 62) - 1)
    number = (time & _48_BITS) << 80 | 8 << 76 | stream << 72 | high << 64 | 2 << 62 | low
    text = f"{number:032x}"
    return NotificationId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
