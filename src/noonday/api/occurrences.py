"""Occurrences of a job: past decisions, planned times, and backfills."""

from datetime import datetime
from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.contract import INSTANT
from noonday.api.instants import bounded_ms, require_order, span_ms
from noonday.api.query import Query
from noonday.api.routing import JobIdInPath, PageSize, Route
from noonday.model.filters import Instant, MoveRequest, SkipRequest
from noonday.model.job import RequestBody
from noonday.model.view import BackfillView, JobView, OccurrencePage

InstantInQuery = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"pattern": INSTANT})]


class OccurrenceQuery(Query, frozen=True):
    from_: InstantInQuery | None = msgspec.field(default=None, name="from")
    to: InstantInQuery | None = None
    limit: PageSize = 500


class SkippedTime(Query, frozen=True):
    at: InstantInQuery | None = None


class BackfillRequest(RequestBody, frozen=True, kw_only=True):
    """Past time range whose occurrences to run."""

    from_: Instant = msgspec.field(name="from")
    to: Instant
    backfill_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:-]{1,100}$")] | None = None
    """Repeating a backfill with the same id creates only missing executions. Defaults to the range."""
    preview: bool = False
    """Return what would run, and create nothing."""


async def list_occurrences(context: RequestContext, job_id: JobIdInPath, query: OccurrenceQuery) -> OccurrencePage:
    """List a job's occurrences: decisions with reasons, what blocks a due one, and planned times.

    Defaults to one day before and one day after now.
    """
    from_ms, to_ms = span_ms(query.from_, query.to, context.services.now_ms())
    return await context.intake.occurrences.list_occurrences(
        context.caller, job_id, from_ms=from_ms, to_ms=to_ms, limit=query.limit
    )


async def skip_occurrences(context: RequestContext, job_id: JobIdInPath, body: SkipRequest) -> JobView:
    """Skip an occurrence to come, or the next ones: they will not fire.

    `at` is the time of one occurrence, `next` the number of the next ones. `skips` of the job and `occurrences` show each with
    who skipped it and why; at its time it becomes a SKIPPED decision. 409 if the occurrence is decided or dispatched already, and
    beyond 100 skips. The version of the job grows.
    """
    if body.at is not None:
        bounded_ms(body.at, "/at")
    return await context.intake.skips.skip(context.caller, job_id, body, context.idem)


async def undo_skips(context: RequestContext, job_id: JobIdInPath, query: SkippedTime) -> JobView:
    """Undo the skip of the occurrence `at`, or all skips of a job, before their time."""
    at_ms = None if query.at is None else bounded_ms(query.at, "/at")
    return await context.intake.skips.undo(context.caller, job_id, at_ms, context.idem)


async def move_occurrence(context: RequestContext, job_id: JobIdInPath, body: MoveRequest) -> JobView:
    """Move one occurrence to come of a recurring job: it fires at `to`, and not at `at`.

    `moves` of the job and `occurrences` show who moved it and why; at its former time it becomes a MOVED decision. A moved
    occurrence is named by its new time: it can be moved again, and moving it to its former time undoes the move. 422 if `at` is
    no occurrence, and if `to` is not in the future or more than 10 years ahead. 409 if the occurrence is decided, dispatched or
    skipped already, if the job has an occurrence at `to`, for a job that runs once, and beyond 100 moves. The version of the job
    grows.
    """
    bounded_ms(body.at, "/at")
    bounded_ms(body.to, "/to")
    return await context.intake.moves.move(context.caller, job_id, body, context.idem)


async def backfill_job(context: RequestContext, job_id: JobIdInPath, body: BackfillRequest) -> BackfillView:
    """Run the occurrences of a past range, in pages. Repeat the request until `created` is 0.

    With `preview`, creates nothing, and scope `read` suffices.
    """
    if not body.preview:
        context.caller.require("write")
    from_ms, to_ms = bounded_ms(body.from_, "/from"), bounded_ms(body.to, "/to")
    require_order(from_ms, to_ms)
    return await context.intake.backfills.backfill(
        context.caller,
        job_id,
        from_ms=from_ms,
        to_ms=to_ms,
        backfill_id=body.backfill_id or f"{from_ms}-{to_ms}",
        preview=body.preview,
        idem=context.idem,
    )


ROUTES = (
    Route("GET", "/v1/jobs/{jobId}/occurrences", list_occurrences, scope="read"),
    Route("POST", "/v1/jobs/{jobId}/skip", skip_occurrences, scope="write"),
    Route("DELETE", "/v1/jobs/{jobId}/skip", undo_skips, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/move", move_occurrence, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/backfill", backfill_job, scope="read"),
)
