"""Results of a dispatch: what has ended, what follows later, and what becomes of the send key."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from noonday.model.ids import stable_fraction
from noonday.model.notifications.notification import EventDetail, EventKind, Notification, NotificationDispatch
from noonday.model.notifications.results import DispatchEvent, KeySettlement, NextDispatch, SendResult
from noonday.model.notifications.sending import ProviderAccount, ProviderOutcome
from noonday.notifications.dispatching import EXPIRED_UNSENT

SHORTEST_MS, LONGEST_MS = 5_000, 900_000
"""Waits before the first and before the last of many tries: each is twice the former, and half of it is left to chance."""


@dataclass
class DispatchTry:
    """One dispatch on its way."""

    dispatch: NotificationDispatch
    number: int
    began_ms: int
    events: list[DispatchEvent] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)

    @property
    def notification(self) -> Notification:
        return self.dispatch.notification


def ended(attempt: DispatchTry, kind: EventKind, now_ms: int, *, reason: str) -> SendResult:
    attempt.events.append(DispatchEvent(kind, now_ms, EventDetail(channel=attempt.dispatch.channel, reason=reason)))
    return result_of(attempt, now_ms, key=KeySettlement.RELEASE)


def expired(attempt: DispatchTry, now_ms: int) -> SendResult:
    return ended(attempt, EventKind.EXPIRED, now_ms, reason=EXPIRED_UNSENT)


def later(attempt: DispatchTry, at_ms: int, reason: str, now_ms: int, *, tries: int) -> SendResult:
    """Return a deferral to an instant, at which it may have expired."""
    at_ms = min(at_ms, attempt.notification.expires_ms)
    detail = EventDetail(channel=attempt.dispatch.channel, reason=reason, until_ms=at_ms)
    attempt.events.append(DispatchEvent(EventKind.DEFERRED, now_ms, detail))
    following = replace(attempt.dispatch, tries=tries, excluded=tuple(attempt.excluded), failure=reason)
    # A key that another notification holds is not released by this.
    return result_of(attempt, now_ms, key=KeySettlement.RELEASE, following=NextDispatch(at_ms, following))


def result_of(
    attempt: DispatchTry,
    now_ms: int,
    *,
    key: KeySettlement = KeySettlement.KEEP,
    following: NextDispatch | None = None,
) -> SendResult:
    notification = attempt.notification
    accepted = EventDetail(
        user_id=notification.user_id,
        channels=notification.channels,
        priority=notification.priority,
        send_ms=notification.send_ms,
        expires_ms=notification.expires_ms,
    )
    events = (DispatchEvent(EventKind.ACCEPTED, notification.created_ms, accepted), *attempt.events)
    return SendResult(
        events=events,
        next=following,
        key=key,
        send_key=notification.send_key,
        key_until_ms=now_ms + notification.key_window_ms,
    )


def reason_of(account: ProviderAccount, outcome: ProviderOutcome) -> str:
    said = ": ".join(text for text in (outcome.code, outcome.detail) if text)
    return f"{account.name}: {said}" if said else f"{account.name}: {outcome.kind}"


def back_off_ms(attempt: DispatchTry) -> int:
    most = min(LONGEST_MS, SHORTEST_MS << min(attempt.dispatch.tries, 16))
    return most // 2 + int(most / 2 * stable_fraction(f"{attempt.notification.id}/{attempt.number}"))
