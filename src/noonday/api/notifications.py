"""/v1/notifications: push messages, SMS and emails to users. Names are snake_case."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from noonday.api.context import RequestContext
from noonday.api.errors import problem_of, public_error
from noonday.api.query import Query
from noonday.api.routing import Cursor, PageSize, Route, encode
from noonday.model.decoding import BodyDecoder
from noonday.model.errors import FLAWS_OF_BATCH, InvalidInput, MalformedBody, NoondayError, PayloadTooLarge
from noonday.model.notifications.notification import NotificationStatus
from noonday.model.notifications.wire import (
    BATCH_BYTES,
    BATCH_NOTIFICATIONS,
    AcceptedNotification,
    NotificationPage,
    NotificationSpec,
    NotificationView,
)
from noonday.notifications.translating import USER_ID

NotificationIdInPath = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        title="notification",
        extra_json_schema={"format": "uuid"},
    ),
]
UserIdInPath = Annotated[str, msgspec.Meta(pattern=USER_ID, description="The application's id of the user")]
DECODED_A_TURN = 100
"""Number of notifications to decode before yielding to the event loop."""
_BATCH = "/v1/notifications/batch"


class NotificationBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to 10,000 notifications."""

    # Raw, so that one malformed element does not invalidate the others.
    notifications: list[msgspec.Raw]


class NotificationBatchView(msgspec.Struct, frozen=True):
    """Accepted notifications, or problem details of the others, in the order of the request."""

    notifications: list[Any]


class UserNotificationsQuery(Query, frozen=True):
    status: NotificationStatus | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


async def send_notification(context: RequestContext, body: NotificationSpec) -> AcceptedNotification:
    """Send a notification to a user: now, at an instant, or at a time in the zone of the user.

    The channels are tried in their order, until a provider takes the notification. 202 means that it is stored: it ends in one
    final status, and is not sent after `expires_at`. 409 if the tenant has an account for none of the channels. 429 if the user
    has 10,000 notifications today.
    """
    return await context.notifications.commands.accept(context.caller, body, _key_of(context))


async def send_notifications(
    context: RequestContext, body: NotificationBatch
) -> list[AcceptedNotification | NoondayError]:
    """Send up to 10,000 notifications.

    Each is accepted or refused by itself. One that is refused, or that was not stored (503), has problem details at its position
    in the response. With an Idempotency-Key, the key of each follows from its position: repeat the same request.
    """
    commands = context.notifications.commands
    if len(body.notifications) > BATCH_NOTIFICATIONS:
        count, most = len(body.notifications), BATCH_NOTIFICATIONS
        detail = f"the batch has {count} notifications, the limit is {most}; send several batches"
        raise PayloadTooLarge(detail, limitNotifications=most, notifications=count)
    specs = await _decoded(body.notifications)
    return await commands.accept_many(context.caller, specs, _key_of(context))


async def get_notification(context: RequestContext, notification_id: NotificationIdInPath) -> NotificationView:
    """Get a notification: its status, the reason, and what happened to it."""
    return await context.notifications.queries.get(context.caller, notification_id)


async def list_user_notifications(
    context: RequestContext, user_id: UserIdInPath, query: UserNotificationsQuery
) -> NotificationPage:
    """List the notifications of a user, newest first, in pages.

    With `status`, a page may be short and still have a next one.
    """
    return await context.notifications.queries.list_of_user(
        context.caller, user_id, status=query.status, cursor=query.cursor, limit=query.limit
    )


def encode_batch(results: Sequence[AcceptedNotification | NoondayError]) -> bytes:
    left, elements = FLAWS_OF_BATCH, list[Any]()
    for index, result in enumerate(results):
        if isinstance(result, NoondayError):
            problem = problem_of(public_error(result, _BATCH), f"{_BATCH}#/notifications/{index}", left)
            left -= len(problem.get("errors", ()))
            elements.append(problem)
        else:
            elements.append(result)
    return encode({"notifications": elements})


ROUTES = (
    Route(
        "POST",
        _BATCH,
        send_notifications,
        scope="write",
        encode=encode_batch,
        returns=NotificationBatchView,
        body_bytes=BATCH_BYTES,
        key_gives_id=True,
    ),
    Route(
        "POST",
        "/v1/notifications",
        send_notification,
        scope="write",
        status=202,
        is_per_user=True,
        key_gives_id=True,
    ),
    Route("GET", "/v1/notifications/{notification_id}", get_notification, scope="read"),
    Route("GET", "/v1/users/{user_id}/notifications", list_user_notifications, scope="read"),
)

_SPEC = BodyDecoder(NotificationSpec)


def _key_of(context: RequestContext) -> str | None:
    return None if context.idem is None else context.idem.key


async def _decoded(raws: Sequence[msgspec.Raw]) -> list[NotificationSpec | NoondayError]:
    specs: list[NotificationSpec | NoondayError] = []
    for number, raw in enumerate(raws, 1):
        specs.append(_decode(raw))
        if number % DECODED_A_TURN == 0:
            await asyncio.sleep(0)
    return specs


def _decode(raw: msgspec.Raw) -> NotificationSpec | NoondayError:
    try:
        spec: NotificationSpec = _SPEC.decode(raw)
    except (InvalidInput, MalformedBody) as error:
        return error
    return spec
