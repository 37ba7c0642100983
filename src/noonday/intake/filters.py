"""Request bodies of queries: the filter of dead letters, and the schedule to preview."""

from datetime import datetime
from typing import Annotated

import msgspec

from noonday.model.job import Dst, JobType

Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class DeadFilter(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Filter of dead letters. All conditions must match; without conditions, all dead letters."""

    job_id: str | None = None
    pool: str | None = None
    handler: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    archived: bool = False


class PreviewRequest(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A schedule whose next times are shown, without creating a job."""

    type: JobType = JobType.CRON
    schedule: str | None = None
    timezone: str | None = None
    dst: Dst = Dst()
    every_sec: float | None = None
    phase_sec: float = 0
    from_: Instant | None = msgspec.field(default=None, name="from")
    """Show times after this instant. Default: now."""
    count: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
