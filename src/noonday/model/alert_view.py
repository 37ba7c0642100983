"""Alerts as the API and its clients exchange them. Field names are snake_case."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from noonday.model.alert import AlertKind, AlertState
from noonday.model.filters import Instant

JobIdText = Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]

MOST_UNREAD = 1_000
"""Unread alerts are counted up to this number."""


class AlertView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    kind: AlertKind
    status: AlertState
    message: Annotated[str, Meta(description="Message of the latest occurrence")]
    count: Annotated[int, Meta(description="Number of times it happened while the alert was open")]
    first_at: datetime
    last_at: datetime
    job_id: Annotated[str | None, Meta(description="Job that the alert is about, if it is about a job")] = None
    task_id: Annotated[str | None, Meta(description="Same as job_id, if the job is a task")] = None
    name: Annotated[str | None, Meta(description="Name of the job or task")] = None
    execution_id: Annotated[
        str | None, Meta(description="Latest execution that the alert is about, if there is one")
    ] = None
    endpoint: Annotated[str | None, Meta(description="Endpoint that the task calls, or that the alert is about")] = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    recovered_at: datetime | None = None


class AlertList(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    alerts: tuple[AlertView, ...]
    unread: Annotated[int, Meta(description="Number of unacknowledged alerts of the tenant, counted up to 1,000")]
    next_cursor: Annotated[str | None, Meta(description="Cursor of the next page, if there is one")] = None


class AcknowledgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filter of the alerts to acknowledge. Without conditions, all unacknowledged alerts."""

    kind: AlertKind | None = None
    task_id: Annotated[JobIdText | None, Meta(description="Only alerts of this task or job")] = None
    until: Annotated[Instant | None, Meta(description="Only alerts that last happened at or before this time")] = None


class Acknowledged(msgspec.Struct, frozen=True):
    acknowledged: int
