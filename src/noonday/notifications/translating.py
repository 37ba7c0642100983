"""Turn requests into notifications: check every field, and compute the send time, the expiry, the id and the send key."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from noonday.model.errors import Flaw, InvalidInput, dotted
from noonday.model.ids import TenantId
from noonday.model.job import ms_of, text_of
from noonday.model.nesting import is_too_deep
from noonday.model.notifications.identity import new_notification_id, send_key, stream_of
from noonday.model.notifications.notification import (
    DEDUPE_KEY_CHARS,
    DEFAULT_EXPIRY_MS,
    DEFAULT_KEY_WINDOW_MS,
    MOST_AHEAD_MS,
    MOST_EXPIRY_MS,
    PAST_MS,
    USER_ID_CHARS,
    Notification,
)
from noonday.model.notifications.sending import ChannelKind, Content
from noonday.model.notifications.wire import IfPast, NotificationContent, NotificationSpec
from noonday.model.zones import zone

USER_ID = rf"^[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]{{0,{USER_ID_CHARS - 1}}}$"
"""A user id is part of a path. It begins with no dot, because clients resolve `.` and `..` in paths."""
LOCAL_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?$"
CONTENT_BYTES = 32 * 1024
"""Maximum size of the content of a notification as JSON."""
DATA_BYTES = 4 * 1024
"""Maximum size of `content.data` as JSON. Push services take no more."""
TITLE_CHARS = 1_000
EARLIEST_YEAR, LATEST_YEAR = 1971, 9000
_USER_ID = re.compile(USER_ID)
_LOCAL_TIME = re.compile(LOCAL_TIME)
_SHOWN = 300
"""Number of characters of a refused text that an error repeats."""
_NEEDED = {
    ChannelKind.PUSH: ("title", "text", "data"),
    ChannelKind.SMS: ("text",),
    ChannelKind.EMAIL: ("text", "html"),
}
"""Parts of the content of which a channel needs at least one."""


class SendTime(NamedTuple):
    """When a notification is sent."""

    ms: int
    at_once: bool
    """True if the request names no time, or a time that has passed and `if_past`."""


def notification_of(
    spec: NotificationSpec, tenant: TenantId, key: str | None, zone_name: str | None, now_ms: int
) -> Notification:
    """Return the notification that a request asks for. Raises InvalidInput with every flaw.

    `key`: the Idempotency-Key. `zone_name`: the zone of the user; only a request with `local_time` needs it.
    """
    flaws = [*_flaws_of_recipient(spec), *_flaws_of_content(spec), *_flaws_of_dedupe(spec)]
    when = _send_time(spec, zone_name, now_ms, flaws)
    expires_ms = _expiry(spec, when, flaws)
    if flaws:
        raise refusal_of(flaws)
    stream = stream_of(spec.channels[0], spec.priority)
    id_ = new_notification_id(tenant, when.ms, stream, key, at_once=when.at_once)
    return Notification(
        id=id_,
        tenant=tenant,
        user_id=spec.user_id,
        channels=spec.channels,
        priority=spec.priority,
        content=Content(spec.content.title, spec.content.text, spec.content.html, spec.content.data),
        send_ms=when.ms,
        expires_ms=expires_ms,
        created_ms=now_ms,
        send_key=send_key(tenant, spec.user_id, spec.dedupe_key, key, id_),
        key_window_ms=_key_window_ms(spec, key),
    )


def refusal_of(flaws: Sequence[Flaw]) -> InvalidInput:
    """Return one error with all flaws, whose details are sentences without their subject."""
    first = f"{dotted(flaws[0].pointer)} {flaws[0].detail}"
    return InvalidInput(first if len(flaws) == 1 else f"{len(flaws)} values are not valid", flaws)


def flaw_of_user_id(text: str) -> str | None:
    """Check the id of a user. Returns the problem, or None."""
    if _USER_ID.fullmatch(text):
        return None
    return f"must be 1 to {USER_ID_CHARS} characters, without slashes and control characters, and not begin with a dot"


def _flaws_of_recipient(spec: NotificationSpec) -> Iterator[Flaw]:
    if (problem := flaw_of_user_id(spec.user_id)) is not None:
        yield Flaw("/user_id", problem, spec.user_id[:_SHOWN])
    for index, channel in enumerate(spec.channels):
        if channel in spec.channels[:index]:
            yield Flaw(f"/channels/{index}", "is listed twice; list each channel once", channel.value)


def _flaws_of_content(spec: NotificationSpec) -> Iterator[Flaw]:
    content = spec.content
    yield from _flaws_of_size(content)
    if content.title is not None and not (len(content.title) <= TITLE_CHARS and content.title.isprintable()):
        detail = f"must be one line of at most {TITLE_CHARS:,} printable characters"
        yield Flaw("/content/title", detail, content.title[:_SHOWN])
    for name in ("text", "html"):
        if "\0" in (getattr(content, name) or ""):
            yield Flaw(f"/content/{name}", "must not contain NUL characters")
    for channel in dict.fromkeys(spec.channels):
        needed = _NEEDED[channel]
        if not any(getattr(content, name) for name in needed):
            parts = " or ".join(f"content.{name}" for name in needed)
            yield Flaw("/content", f"must have {parts}: {channel} has nothing else to send", allowed=list(needed))


def _flaws_of_size(content: NotificationContent) -> Iterator[Flaw]:
    data = msgspec.json.encode(content.data)
    if len(data) > DATA_BYTES:
        yield Flaw("/content/data", f"has {len(data):,} bytes as JSON; at most {DATA_BYTES:,} are allowed")
    elif is_too_deep(data):
        yield Flaw("/content/data", "is nested too deeply; at most 100 levels are allowed")
    size = len(msgspec.json.encode(content))
    if size > CONTENT_BYTES:
        detail = f"has {size:,} bytes as JSON; at most {CONTENT_BYTES:,} are allowed: link to larger content"
        yield Flaw("/content", detail)


def _flaws_of_dedupe(spec: NotificationSpec) -> Iterator[Flaw]:
    key = spec.dedupe_key
    if key is not None and not (0 < len(key) <= DEDUPE_KEY_CHARS):
        yield Flaw("/dedupe_key", f"must have 1 to {DEDUPE_KEY_CHARS} characters", key[:_SHOWN])
    if key is None and spec.dedupe_seconds is not None:
        yield Flaw("/dedupe_seconds", "needs dedupe_key, the key that it is the window of", spec.dedupe_seconds)


def _send_time(spec: NotificationSpec, zone_name: str | None, now_ms: int, flaws: list[Flaw]) -> SendTime:
    """Return the send time, and append the flaws of the fields that it follows from."""
    if spec.scheduled_at is not None and spec.local_time is not None:
        flaws.append(Flaw("/local_time", "cannot be combined with scheduled_at: send one of them", spec.local_time))
    if spec.scheduled_at is not None:
        return _checked_time("/scheduled_at", _instant_ms(spec.scheduled_at), spec, now_ms, flaws)
    if spec.local_time is not None:
        return _checked_time("/local_time", _local_ms(spec.local_time, zone_name), spec, now_ms, flaws)
    return SendTime(now_ms, at_once=True)


def _checked_time(
    pointer: str, send_ms: int | None, spec: NotificationSpec, now_ms: int, flaws: list[Flaw]
) -> SendTime:
    given = spec.scheduled_at.isoformat() if spec.scheduled_at is not None else str(spec.local_time)[:_SHOWN]
    if send_ms is None:
        allowed = "a time such as 2030-01-31T09:00" if pointer == "/local_time" else "the years 1971 to 9000"
        flaws.append(Flaw(pointer, f"is not a time; write {allowed}", given, allowed))
    elif send_ms > now_ms + MOST_AHEAD_MS:
        last = text_of(now_ms + MOST_AHEAD_MS)
        flaws.append(Flaw(pointer, f"is over a year ahead; the latest time is {last}", given, f"up to {last}"))
    elif send_ms < now_ms - PAST_MS:
        if spec.if_past is IfPast.SEND:
            return SendTime(now_ms, at_once=True)
        detail = (
            f"is over {PAST_MS // 1000} seconds in the past: the server's time is {text_of(now_ms)}. "
            "Send a later time, or set if_past to SEND to send it now"
        )
        flaws.append(Flaw(pointer, detail, given, f"from {text_of(now_ms - PAST_MS)}"))
    else:
        return SendTime(send_ms, at_once=False)
    return SendTime(now_ms, at_once=True)


def _instant_ms(instant: datetime) -> int | None:
    return ms_of(instant) if EARLIEST_YEAR <= instant.year <= LATEST_YEAR else None


def _local_ms(text: str, zone_name: str | None) -> int | None:
    """Return the instant at which the clocks of a zone show a time, by the rule of jobs.

    A time that the clocks skip is later by the width of the gap. A time that they show twice is the first of both.
    """
    if not _LOCAL_TIME.fullmatch(text):
        return None
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not EARLIEST_YEAR <= local.year <= LATEST_YEAR:
        return None
    return ms_of(local.replace(tzinfo=zone(zone_name or "UTC"), fold=0))


def _expiry(spec: NotificationSpec, when: SendTime, flaws: list[Flaw]) -> int:
    if spec.expires_at is None:
        return when.ms + DEFAULT_EXPIRY_MS
    expires_ms, given = _instant_ms(spec.expires_at), spec.expires_at.isoformat()
    last = when.ms + MOST_EXPIRY_MS
    if flaws and any(flaw.pointer in ("/scheduled_at", "/local_time") for flaw in flaws):
        return last  # the send time is not known
    if expires_ms is None or expires_ms > last:
        detail = f"is over 7 days after the send time; the latest expiry is {text_of(last)}"
        flaws.append(Flaw("/expires_at", detail, given, f"up to {text_of(last)}"))
    elif expires_ms <= when.ms:
        detail = f"must be later than the send time, which is {text_of(when.ms)}"
        flaws.append(Flaw("/expires_at", detail, given))
    return expires_ms or last


def _key_window_ms(spec: NotificationSpec, key: str | None) -> int:
    if spec.dedupe_key is not None and spec.dedupe_seconds is not None:
        return spec.dedupe_seconds * 1000
    return DEFAULT_KEY_WINDOW_MS if spec.dedupe_key is not None or key is not None else 0
