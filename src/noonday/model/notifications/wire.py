"""Notifications, users and provider accounts as the API and its clients exchange them. Field names are snake_case."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from noonday.model.filters import Instant
from noonday.model.notifications.notification import (
    MOST_CHANNELS,
    EventKind,
    NotificationPriority,
    NotificationStatus,
)
from noonday.model.notifications.sending import ChannelKind, ProviderKind
from noonday.model.view import Page

BATCH_NOTIFICATIONS = 10_000
"""Maximum number of notifications of one request."""
BATCH_BYTES = 16 * 1024 * 1024
"""Maximum size of the body of such a request."""
MOST_DEDUPE_SECONDS = 30 * 86_400


class IfPast(StrEnum):
    """What becomes of a notification whose time has passed."""

    SEND = "SEND"
    """It is sent now."""


class _RequestBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class NotificationContent(_RequestBody, frozen=True, kw_only=True):
    """What a notification says. An SMS needs `text`, an email `text` or `html`, a push message `title`, `text` or `data`."""

    title: str | None = None
    """Title of a push message, subject of an email."""
    text: str | None = None
    html: str | None = None
    data: dict[str, Any] = {}
    """JSON for the application on the device."""


class NotificationSpec(_RequestBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/notifications`. Without `scheduled_at` and `local_time` it is sent now."""

    user_id: str
    channels: Annotated[tuple[ChannelKind, ...], msgspec.Meta(min_length=1, max_length=MOST_CHANNELS)]
    """Channels in the order in which they are tried. A later one is used only if no earlier one took the notification."""
    content: NotificationContent
    priority: NotificationPriority = NotificationPriority.NORMAL
    scheduled_at: Instant | None = None
    local_time: str | None = None
    """Time in the zone of the user, such as `2030-01-31T09:00`."""
    expires_at: Instant | None = None
    """The notification is not sent after it. Default: 24 hours after the send time; at most 7 days after it."""
    dedupe_key: str | None = None
    """Of the notifications of a user with the same key, one is sent."""
    dedupe_seconds: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEDUPE_SECONDS)] | None = None
    """How long `dedupe_key` prevents a second send. Default: 24 hours."""
    if_past: IfPast | None = None
    """SEND: a notification whose time has passed is sent now. Without it, one over 60 seconds late is refused."""


class _ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    pass


class AcceptedNotification(_ResponseBody, frozen=True, kw_only=True):
    """A notification that was accepted."""

    id: str
    status: NotificationStatus
    send_at: datetime


class NotificationEventView(_ResponseBody, frozen=True, kw_only=True):
    """What happened to a notification. It contains neither the address nor the content."""

    at: datetime
    kind: EventKind
    number: int
    """Number of the dispatch; 0 for the acceptance."""
    channel: ChannelKind | None
    provider: str | None
    """Name of the provider account."""
    provider_id: str | None
    """The provider's id of the message."""
    detail: str | None


class NotificationSummary(_ResponseBody, frozen=True, kw_only=True):
    """A notification in a list."""

    id: str
    user_id: str
    channels: tuple[ChannelKind, ...]
    priority: NotificationPriority
    send_at: datetime
    expires_at: datetime
    status: NotificationStatus
    final: bool
    """True if no further call of a provider follows. Receipts may still change the status."""
    reason: str | None
    """Why it has this status."""


class NotificationView(NotificationSummary, frozen=True, kw_only=True):
    """A notification with its events, the oldest first."""

    events: tuple[NotificationEventView, ...]


class NotificationPage(Page, frozen=True, kw_only=True):
    notifications: Annotated[tuple[NotificationSummary, ...], msgspec.Meta(description="Newest first")]


class UserSpec(_RequestBody, frozen=True, kw_only=True):
    """Request body of `PUT /v1/users/{user_id}`: where a user is reached."""

    zone: str | None = None
    """Time zone of the user. Default: UTC."""
    locale: str | None = None
    """Language tag, such as `de` or `pt-BR`."""
    email: str | None = None
    phone: str | None = None
    """Phone number in E.164, such as `+4930123456`."""


class UserView(_ResponseBody, frozen=True, kw_only=True):
    user_id: str
    zone: str | None
    locale: str | None
    email: str | None
    phone: str | None
    created_at: datetime
    updated_at: datetime
    redacted: bool | UnsetType = UNSET
    """True if the caller is an operator of another tenant. Then `email` and `phone` are null."""


class AccountLimits(_RequestBody, frozen=True, kw_only=True):
    """Limits of one account, over all processes. Without a limit, the provider's answers are what slows it down."""

    rate_per_sec: Annotated[float, msgspec.Meta(gt=0, le=10_000)] | None = None
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None


class ProviderSpec(_RequestBody, frozen=True, kw_only=True):
    """Request body of `PUT /v1/providers/{name}`."""

    kind: ProviderKind
    channel: ChannelKind | None = None
    """The channel follows from the kind. If it is set, it is compared."""
    order: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """Position among the accounts of the channel; the lowest is tried first."""
    limits: AccountLimits = AccountLimits()
    settings: dict[str, Any] = {}
    secrets: dict[str, Any] | UnsetType = UNSET
    """Texts by name. If omitted, the stored secrets are kept, provided that kind and settings do not change."""


class ProviderView(_ResponseBody, frozen=True, kw_only=True):
    """A provider account, without its secrets."""

    name: str
    kind: ProviderKind
    channel: ChannelKind
    order: int
    limits: AccountLimits
    settings: dict[str, Any]
    secret_names: tuple[str, ...]
    """Names of the secrets. Their values are never shown."""
    fault: str | None
    """Why the account is stopped: the provider refused its credentials or settings. PUT starts it again."""
    fault_at: datetime | None
    created_at: datetime
    updated_at: datetime
