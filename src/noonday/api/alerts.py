"""/v1/alerts: alerts and their acknowledgement. Names are snake_case."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.instants import bounded_ms
from noonday.api.query import Query
from noonday.api.routing import PageSize, Route, TaskIdInPath
from noonday.model.alert import AlertKind
from noonday.model.alert_view import Acknowledged, AcknowledgeRequest, AlertList, AlertView

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


async def list_alerts(context: RequestContext, query: AlertQuery) -> AlertList:
    """List alerts, newest first, in pages.

    `unread` selects unacknowledged (true) or acknowledged (false) alerts. `task_id` is the id of a task or of any job. Pass
    `next_cursor` as `cursor`.
    """
    return await context.alerts.list_alerts(
        context.caller,
        unread=query.unread,
        kind=query.kind,
        job_id=_lower(query.task_id),
        cursor=_lower(query.cursor),
        limit=query.limit,
    )


async def get_alert(context: RequestContext, alert_id: AlertId) -> AlertView:
    """Get an alert."""
    return await context.alerts.get(context.caller, alert_id)


async def acknowledge_alert(context: RequestContext, alert_id: AlertId) -> AlertView:
    """Acknowledge an alert. If its cause recurs, a new alert opens."""
    return await context.alerts.acknowledge(context.caller, alert_id, context.idem)


async def acknowledge_alerts(context: RequestContext, body: AcknowledgeRequest) -> Acknowledged:
    """Acknowledge all alerts that match the filter; an empty filter matches all."""
    if body.until is not None:
        bounded_ms(body.until, "/until")
    return await context.alerts.acknowledge_all(context.caller, body, context.idem)


def _lower(name: str | None) -> str | None:
    return None if name is None else name.lower()


ROUTES = (
    Route("GET", "/v1/alerts", list_alerts, scope="read"),
    Route("POST", "/v1/alerts/acknowledge", acknowledge_alerts, scope="write", needs_key=True),
    Route("GET", "/v1/alerts/{alert_id}", get_alert, scope="read"),
    Route("POST", "/v1/alerts/{alert_id}/acknowledge", acknowledge_alert, scope="write", needs_key=True),
)
