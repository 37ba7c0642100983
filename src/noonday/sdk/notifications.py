"""Client of /v1/notifications: push messages, SMS and emails to users."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import uuid_utils

from noonday.model.errors import InvalidInput, NoondayError
from noonday.model.notifications.notification import NotificationStatus
from noonday.model.notifications.wire import (
    BATCH_BYTES,
    BATCH_NOTIFICATIONS,
    AcceptedNotification,
    NotificationPage,
    NotificationSpec,
    NotificationView,
)
from noonday.sdk.fields import filled
from noonday.sdk.problems import Problem, is_problem, problem_of
from noonday.sdk.transport import ClientPart, decoded, path_of

_FRAME_BYTES = 64
"""Bytes of a batch around its notifications."""
_BATCH = "/v1/notifications/batch"


class NotificationsClient(ClientPart):
    """`client.notifications`. Errors and retries are as in `Client`.

    Every notification has an Idempotency-Key, by default a new UUID of version 7. Sending again with the same key, also after a
    crash of the application, sends one notification within 24 hours.
    """

    async def send(
        self, spec: NotificationSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> AcceptedNotification:
        """Send a notification: `send(user_id="u-17", channels=["EMAIL"], content={"title": "Shipped", "text": "..."})`.

        `scheduled_at` and `expires_at` need a time zone; `local_time` is a datetime without one, or text. Raises InvalidInput
        with every flaw, and Conflict if there is no account for the channels.
        """
        body = filled(NotificationSpec, spec, _with_local_time(fields))
        key = idempotency_key or _new_key()
        return await self._http.change(AcceptedNotification, "POST", "/v1/notifications", body, key=key)

    async def send_many(
        self, specs: Iterable[NotificationSpec], *, idempotency_key: str | None = None
    ) -> list[AcceptedNotification | Problem]:
        """Send many notifications. Returns the result or the problem of each, in the same order.

        The client sends several batches if there are over 10,000, or over 16 MiB. If a later batch fails, `answered` in the
        error's context has the results of those before it. To repeat a call, repeat it with the same key and specs.
        """
        key, answered = idempotency_key or _new_key(), list[AcceptedNotification | Problem]()
        for number, batch in enumerate(_batches(specs)):
            try:
                answered += await self._send_batch(batch, f"{key}/{number}")
            except NoondayError as bad:
                bad.context["answered"] = answered
                raise
        return answered

    async def get(self, notification_id: str) -> NotificationView:
        """Return a notification with its status and its events. Raises NotFound."""
        return await self._http.get(NotificationView, path_of("notifications", notification_id))

    async def list(
        self,
        user_id: str,
        *,
        status: NotificationStatus | str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> NotificationPage:
        """Return a page of the notifications of a user, newest first. `next` is the next `cursor`.

        With `status`, a page may be short and still have a next one.
        """
        query = {"status": status, "cursor": cursor, "limit": limit}
        return await self._http.get(NotificationPage, path_of("users", user_id, "notifications"), query)

    async def _send_batch(self, batch: Sequence[msgspec.Raw], key: str) -> Sequence[AcceptedNotification | Problem]:
        answer = await self._http.change(_Answers, "POST", _BATCH, {"notifications": batch}, key=key)
        return [_answer(raw) for raw in answer.notifications]


class _Answers(msgspec.Struct):
    notifications: list[msgspec.Raw]


def _answer(raw: msgspec.Raw) -> AcceptedNotification | Problem:
    members = msgspec.json.decode(raw)
    if isinstance(members, dict) and is_problem(members):
        return problem_of(members)
    return decoded(AcceptedNotification, raw, _BATCH)


def _batches(specs: Iterable[NotificationSpec]) -> Iterator[list[msgspec.Raw]]:
    batch, size = list[msgspec.Raw](), _FRAME_BYTES
    for spec in specs:
        encoded = msgspec.json.encode(spec)
        if batch and (len(batch) == BATCH_NOTIFICATIONS or size + len(encoded) + 1 > BATCH_BYTES):
            yield batch
            batch, size = [], _FRAME_BYTES
        batch.append(msgspec.Raw(encoded))
        size += len(encoded) + 1
    if batch:
        yield batch


def _with_local_time(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the local time as text."""
    at = fields.get("local_time")
    if not isinstance(at, datetime):
        return fields
    if at.tzinfo is not None:
        detail = "local_time must have no time zone: it is in the zone of the user; use scheduled_at for an instant"
        raise InvalidInput.of("/local_time", detail, at.isoformat())
    return {**fields, "local_time": at.isoformat(timespec="seconds")}


def _new_key() -> str:
    """Return a new key. A server knows from a UUID of version 7 how long ago it can have been used first."""
    return str(uuid_utils.uuid7())
