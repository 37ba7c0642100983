"""Result of one dispatch, as its sender reports it and the recorder stores it."""

from enum import StrEnum

import msgspec

from noonday.model.notifications.notification import EventDetail, EventKind, NotificationDispatch


class KeySettlement(StrEnum):
    """What becomes of the send key once the result is recorded."""

    KEEP = "KEEP"
    """This dispatch does not hold it."""
    SENT = "SENT"
    RELEASE = "RELEASE"


class DispatchEvent(msgspec.Struct, frozen=True):
    """An event of a dispatch, before it is sealed."""

    kind: EventKind
    at_ms: int
    detail: EventDetail
    apart: str = ""
    """What tells it apart from others of its kind, such as the provider account."""


class NextDispatch(msgspec.Struct, frozen=True):
    """The dispatch that follows."""

    at_ms: int
    dispatch: NotificationDispatch


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a dispatch. Nothing at all, if another delivery of it had come to an end before."""

    events: tuple[DispatchEvent, ...] = ()
    next: NextDispatch | None = None
    key: KeySettlement = KeySettlement.KEEP
    send_key: str = ""
    key_until_ms: int = 0
