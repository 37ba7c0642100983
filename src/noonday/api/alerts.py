"""/v1/alerts: the inbox of what went wrong. Names are snake_case here."""

from typing import Annotated

import msgspec

from noonday.alerts.wire import Acknowledged, AcknowledgeRequest, AlertList, AlertView
from noonday.api.call import Call
from noonday.api.instants import bounded_ms
from noonday.api.query import Query
from noonday.api.routing import PageSize, Route, TaskIdInPath
from noonday.model.alert import AlertKind

AlertId = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        title="alert",
        extra_json_schema={"format": "uuid"},
    ),
]


class AlertQuery(Query, frozen=True):
    unread: bool | None = None
    kind: AlertKind | None = None
    task_id: TaskIdInPath | None = msgspec.field(default=None, name="task_id")
    cursor: AlertId | None = None
    limit: PageSize = 50


async def list_alerts(call: Call, query: AlertQuery) -> AlertList:
    """List alerts, newest first, in pages.

    `unread` asks for those that nobody has acknowledged, or else for those that somebody has. `task_id` is that of a task, or of
    any job. Pass `next_cursor` as `cursor`.
    """
    return await call.alerts.list_alerts(
        call.caller,
        unread=query.unread,
        kind=query.kind,
        job_id=_lower(query.task_id),
        cursor=_lower(query.cursor),
        limit=query.limit,
    )


async def get_alert(call: Call, alert_id: AlertId) -> AlertView:
    """Show an alert."""
    return await call.alerts.get(call.caller, alert_id)


async def acknowledge_alert(call: Call, alert_id: AlertId) -> AlertView:
    """Acknowledge an alert: it is read. If it happens again, another one is opened."""
    return await call.alerts.acknowledge(call.caller, alert_id, call.idem)


async def acknowledge_alerts(call: Call, body: AcknowledgeRequest) -> Acknowledged:
    """Acknowledge all alerts that meet the conditions, or all there are."""
    if body.until is not None:
        bounded_ms(body.until, "/until")
    return await call.alerts.acknowledge_all(call.caller, body, call.idem)


def _lower(name: str | None) -> str | None:
    return None if name is None else name.lower()


ROUTES = (
    Route("GET", "/v1/alerts", list_alerts, scope="read"),
    Route("POST", "/v1/alerts/acknowledge", acknowledge_alerts, scope="write", needs_key=True),
    Route("GET", "/v1/alerts/{alert_id}", get_alert, scope="read"),
    Route("POST", "/v1/alerts/{alert_id}/acknowledge", acknowledge_alert, scope="write", needs_key=True),
)
