"""Alerts as they are read and acknowledged. Names are snake_case."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from noonday.model.alert import Alert, AlertKind, AlertState
from noonday.model.job import instant_of
from noonday.model.pool import WEBHOOKS_POOL

JobIdText = Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
Instant = Annotated[datetime, Meta(tz=True)]


class AlertView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    kind: AlertKind
    status: AlertState
    message: Annotated[str, Meta(description="What was said the last time")]
    count: Annotated[int, Meta(description="How often it happened while the alert was open")]
    first_at: datetime
    last_at: datetime
    job_id: Annotated[str | None, Meta(description="Of the job it is about, if it is about one")] = None
    task_id: Annotated[str | None, Meta(description="The same, if the job is a task")] = None
    name: Annotated[str | None, Meta(description="Of the job or task")] = None
    execution_id: Annotated[str | None, Meta(description="Of the last execution, if there is one")] = None
    endpoint: Annotated[str | None, Meta(description="Whom the task calls, or whom it is about")] = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    recovered_at: datetime | None = None


class AlertList(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    alerts: tuple[AlertView, ...]
    unread: Annotated[int, Meta(description="How many nobody has acknowledged, of all; counted up to 1,000")]
    next_cursor: Annotated[str | None, Meta(description="Of the following page, if there is one")] = None


class AcknowledgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which alerts; all that nobody has acknowledged, if nothing is said."""

    kind: AlertKind | None = None
    task_id: Annotated[JobIdText | None, Meta(description="Of a task, or of any job")] = None
    until: Annotated[Instant | None, Meta(description="Only those that have not happened again since")] = None


class Acknowledged(msgspec.Struct, frozen=True):
    acknowledged: int


def alert_view(alert: Alert) -> AlertView:
    job = alert.job_id or None
    is_task = alert.pool == WEBHOOKS_POOL and alert.endpoint is not None
    return AlertView(
        id=alert.id,
        kind=alert.kind,
        status=alert.status,
        message=alert.message,
        count=alert.count,
        first_at=instant_of(alert.first_ms),
        last_at=instant_of(alert.last_ms),
        job_id=job,
        task_id=job if is_task else None,
        name=alert.job_name,
        execution_id=alert.execution_id or None,
        endpoint=alert.endpoint,
        acknowledged_at=instant_of(alert.acknowledged_ms),
        acknowledged_by=alert.acknowledged_by,
        recovered_at=instant_of(alert.recovered_ms),
    )
