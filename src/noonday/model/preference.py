"""Alert preferences as the API and its clients exchange them. Field names are snake_case."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from noonday.model.alert import AlertKind
from noonday.model.notice import LONGEST_DIGEST_SEC, USUAL_DIGEST_SEC, USUAL_KINDS, Recipient

MOST_LISTED = 100
"""Maximum number of pools, and of jobs, that one preference names."""


class PreferenceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request body of an alert preference: which alert events to send, and to whom."""

    channel: Recipient
    user: Annotated[
        str | None, msgspec.Meta(description="Name of the person notified; by default, the caller's subject")
    ] = None
    kinds: Annotated[tuple[AlertKind, ...], msgspec.Meta(min_length=1, max_length=len(AlertKind))] = USUAL_KINDS
    digest_seconds: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=LONGEST_DIGEST_SEC,
            description="Seconds during which events are collected into one message. 0 sends at once.",
        ),
    ] = USUAL_DIGEST_SEC
    pools: Annotated[
        tuple[str, ...], msgspec.Meta(max_length=MOST_LISTED, description="Only events of these pools")
    ] = ()
    task_ids: Annotated[
        tuple[str, ...], msgspec.Meta(max_length=MOST_LISTED, description="Only events of these tasks and of job_ids")
    ] = ()
    job_ids: Annotated[
        tuple[str, ...], msgspec.Meta(max_length=MOST_LISTED, description="Only events of these jobs and of task_ids")
    ] = ()
    enabled: bool = True


class PreferenceView(msgspec.Struct, frozen=True):
    """A stored preference. `job_ids` includes the `task_ids` of the request: a task is a job."""

    id: str
    user: str
    channel: Recipient | None
    kinds: tuple[AlertKind, ...]
    digest_seconds: int
    pools: tuple[str, ...]
    job_ids: tuple[str, ...]
    enabled: bool
    created_at: datetime
    updated_at: datetime
    redacted: bool | UnsetType = UNSET
    """True if the caller is an operator of another tenant. Then `channel` is null."""


class SentNotice(msgspec.Struct, frozen=True):
    """A test notice, and the job that sends it."""

    notice_id: str
    job_id: str
