"""Views of notifications, users and provider accounts: from rows and events to wire types."""

from collections.abc import Collection, Sequence

import msgspec

from noonday.model.job import instant_of
from noonday.model.notifications.notification import (
    DispatchDecision,
    Notification,
    NotificationPriority,
    NotificationStatus,
)
from noonday.model.notifications.sending import CHANNEL_OF, ChannelKind
from noonday.model.notifications.status import DerivedStatus, OpenedEvent, StoredDispatch, status_of
from noonday.model.notifications.user import AccountRow, Profile
from noonday.model.notifications.wire import (
    AcceptedNotification,
    AccountLimits,
    NotificationEventView,
    NotificationSummary,
    NotificationView,
    ProviderView,
    UserView,
)


class NotificationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the stores know about one notification."""

    id: str
    user_id: str
    channels: tuple[ChannelKind, ...]
    priority: NotificationPriority
    send_ms: int
    expires_ms: int
    row: StoredDispatch | None
    events: Sequence[OpenedEvent]
    decisions: Sequence[DispatchDecision]

    def derive(self, now_ms: int, recorded_ms: int) -> DerivedStatus:
        return status_of(self.send_ms, self.expires_ms, self.row, self.events, self.decisions, now_ms, recorded_ms)


def accepted_view(notification: Notification, now_ms: int) -> AcceptedNotification:
    is_due = notification.send_ms <= now_ms
    return AcceptedNotification(
        id=notification.id,
        status=NotificationStatus.QUEUED if is_due else NotificationStatus.SCHEDULED,
        send_at=instant_of(notification.send_ms),
    )


def summary_view(record: NotificationRecord, derived: DerivedStatus) -> NotificationSummary:
    return NotificationSummary(
        id=record.id,
        user_id=record.user_id,
        channels=record.channels,
        priority=record.priority,
        send_at=instant_of(record.send_ms),
        expires_at=instant_of(record.expires_ms),
        status=derived.status,
        final=derived.is_final,
        reason=derived.reason,
    )


def notification_view(record: NotificationRecord, derived: DerivedStatus) -> NotificationView:
    summary = summary_view(record, derived)
    fields = {name: getattr(summary, name) for name in summary.__struct_fields__}
    events = sorted(record.events, key=lambda event: (event.at_ms, event.name))
    return NotificationView(**fields, events=tuple(map(event_view, events)))


def event_view(event: OpenedEvent) -> NotificationEventView:
    detail = event.detail
    return NotificationEventView(
        at=instant_of(event.at_ms),
        kind=event.kind,
        number=event.number,
        channel=detail.channel,
        provider=detail.provider,
        provider_id=detail.provider_id,
        detail=detail.reason,
    )


def user_view(user_id: str, profile: Profile, created_ms: int, updated_ms: int) -> UserView:
    return UserView(
        user_id=user_id,
        zone=profile.zone,
        locale=profile.locale,
        email=profile.email,
        phone=profile.phone,
        created_at=instant_of(created_ms),
        updated_at=instant_of(updated_ms),
    )


def provider_view(row: AccountRow, secret_names: Collection[str]) -> ProviderView:
    return ProviderView(
        name=row.name,
        kind=row.kind,
        channel=CHANNEL_OF[row.kind],
        order=row.order,
        limits=AccountLimits(rate_per_sec=row.limits.rate_per_sec, max_concurrency=row.limits.max_concurrency),
        settings=dict(row.settings),
        secret_names=tuple(sorted(secret_names)),
        fault=row.fault,
        fault_at=instant_of(row.fault_ms),
        created_at=instant_of(row.created_ms),
        updated_at=instant_of(row.updated_ms),
    )
