"""A notification: what an application asked for, and what is known about it."""

from enum import StrEnum
from typing import Annotated, NewType

import msgspec

from noonday.model.notifications.sending import ChannelKind, Content

NotificationId = NewType("NotificationId", str)

MOST_CHANNELS = len(ChannelKind)
USER_ID_CHARS = 255
DEDUPE_KEY_CHARS = 255
MINUTE_MS = 60_000
DAY_MS = 86_400_000
DEFAULT_EXPIRY_MS = DAY_MS
"""Expiry of a notification that states none, counted from its send time."""
MOST_EXPIRY_MS = 7 * DAY_MS
"""Longest expiry, counted from the send time. The log is kept a day longer."""
MOST_AHEAD_MS = 366 * DAY_MS
"""How far ahead a notification may be scheduled."""
PAST_MS = 60_000
"""How far in the past a send time may be. What is older is refused, unless the request says that it is sent all the same."""
DEFAULT_KEY_WINDOW_MS = DAY_MS
"""How long an Idempotency-Key prevents a second send."""


class NotificationPriority(StrEnum):
    """Order of sending within a channel. CRITICAL shares the stream of HIGH, and passes quiet hours and limits."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"


class OnUnknown(StrEnum):
    """What follows an outcome that is unknown: the message left, and no answer arrived."""

    LEAVE = "LEAVE"
    LOOK_UP = "LOOK_UP"
    SEND_AGAIN = "SEND_AGAIN"


class NotificationStatus(StrEnum):
    """Status of a notification, in ascending rank: the highest that anything says wins."""

    SCHEDULED = "SCHEDULED"
    QUEUED = "QUEUED"
    DEFERRED = "DEFERRED"
    EXPIRED = "EXPIRED"
    SUPPRESSED = "SUPPRESSED"
    DUPLICATE = "DUPLICATE"
    CANCELLED = "CANCELLED"
    DIGESTED = "DIGESTED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    BOUNCED = "BOUNCED"


OPEN_STATUSES = frozenset({NotificationStatus.SCHEDULED, NotificationStatus.QUEUED, NotificationStatus.DEFERRED})
"""Statuses that a call of a provider may still follow. All others are final, although receipts may raise them."""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """What an application asked for. It is sealed wherever it is kept."""

    id: NotificationId
    tenant: str
    user_id: str
    channels: tuple[ChannelKind, ...]
    """Channels in the order in which they are tried."""
    priority: NotificationPriority = NotificationPriority.NORMAL
    content: Content
    send_ms: int
    expires_ms: int
    created_ms: int
    send_key: str
    """Names the send: of the notifications with one key, one is sent within the window of the key."""
    key_window_ms: int = 0
    """How long the send key lasts after the send. 0: until the outcome is recorded, because it is the notification's own."""
    on_unknown: OnUnknown = OnUnknown.LEAVE


class NotificationDispatch(msgspec.Struct, frozen=True, kw_only=True):
    """The sealed payload of one dispatch: the notification, and how far earlier dispatches came."""

    notification: Notification
    channel_index: int = 0
    """Index of the channel that is tried."""
    tries: int = 0
    """Number of earlier calls on this channel that may be repeated. It decides the back-off."""
    excluded: tuple[str, ...] = ()
    """Provider accounts that refused this notification on this channel."""
    failure: str | None = None
    """Why the last channel or provider did not take it. It is the reason if nothing else takes it either."""

    @property
    def channel(self) -> ChannelKind:
        return self.notification.channels[self.channel_index]


class EventKind(StrEnum):
    """What an event of a notification tells."""

    ACCEPTED = "ACCEPTED"
    """The notification was accepted. Its detail shows what the request said, without its content."""
    DEFERRED = "DEFERRED"
    """Another dispatch follows later: after a retryable answer, in quiet hours, over a limit."""
    FELL_BACK = "FELL_BACK"
    """Another dispatch follows on the next channel."""
    EXPIRED = "EXPIRED"
    SUPPRESSED = "SUPPRESSED"
    DUPLICATE = "DUPLICATE"
    CANCELLED = "CANCELLED"
    DIGESTED = "DIGESTED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    BOUNCED = "BOUNCED"
    OPENED = "OPENED"
    CLICKED = "CLICKED"


class EventDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an event says. It never contains an address or content. It is sealed wherever it is kept."""

    channel: ChannelKind | None = None
    provider: str | None = None
    """Name of the provider account."""
    provider_id: str | None = None
    reason: str | None = None
    until_ms: int | None = None
    """Time of the next dispatch."""
    user_id: str | None = None
    channels: tuple[ChannelKind, ...] = ()
    priority: NotificationPriority | None = None
    send_ms: int | None = None
    expires_ms: int | None = None


class NotificationEvent(msgspec.Struct, frozen=True):
    """One fact about a notification. (tenant, notification, name) identifies it, so that recording it again changes nothing."""

    tenant: str
    notification_id: NotificationId
    name: str
    """The kind, the number of the dispatch, and what else tells it apart, such as `SENT/1/apns-main`."""
    at_ms: int
    kind: EventKind
    number: int
    """Number of the dispatch; 0 for the acceptance."""
    detail: bytes
    """Ciphertext of an EventDetail."""


class DecisionKind(StrEnum):
    """A decision about one dispatch. The first one that is stored stands."""

    PUBLISHED = "PUBLISHED"
    CANCELLED = "CANCELLED"
    EDITED = "EDITED"


class DispatchDecision(msgspec.Struct, frozen=True):
    """Who won a dispatch: the poller that publishes it, or the person who cancels or edits it."""

    tenant: str
    notification_id: NotificationId
    number: int
    kind: DecisionKind


DispatchKey = tuple[str, NotificationId, int]
"""(tenant, notification, number): one dispatch of a notification."""
Phone = Annotated[str, msgspec.Meta(pattern=r"^\+[1-9][0-9]{6,14}$")]
