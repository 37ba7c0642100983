"""What a schedule says: past decisions, future times, and ranges to be run again."""

from datetime import datetime
from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.contract import INSTANT
from noonday.api.instants import DAY_MS, bounded_ms, require_order
from noonday.api.query import Query
from noonday.api.routing import JobIdInPath, PageSize, Route
from noonday.intake.filters import Instant
from noonday.model.view import BackfillView, OccurrencePage

InstantInQuery = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"pattern": INSTANT})]


class Range(Query, frozen=True):
    from_: InstantInQuery | None = msgspec.field(default=None, name="from")
    to: InstantInQuery | None = None
    limit: PageSize = 500


class BackfillRequest(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A past range to run the job's occurrences of."""

    from_: Instant = msgspec.field(name="from")
    to: Instant
    backfill_id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:-]{1,100}$")] | None = None
    """Repeating a backfill under the same id makes only what is missing. Made of the range if absent."""
    preview: bool = False
    """Only say what would be run."""


async def list_occurrences(call: Call, job_id: JobIdInPath, query: Range) -> OccurrencePage:
    """Explain a job's occurrences: what was decided and why, what holds a due one, what is planned.

    Without `from` and `to`: a day back and a day ahead.
    """
    from_ms, to_ms = _span(query, call.engine.now_ms())
    return await call.reading.occurrences(call.caller, job_id, from_ms=from_ms, to_ms=to_ms, limit=query.limit)


async def backfill_job(call: Call, job_id: JobIdInPath, body: BackfillRequest) -> BackfillView:
    """Run the occurrences of a past range, in pages: repeat the call until `created` is 0.

    With `preview` nothing is made, and a token that may only read will do.
    """
    if not body.preview:
        call.caller.require("write")
    from_ms, to_ms = bounded_ms(body.from_, "/from"), bounded_ms(body.to, "/to")
    require_order(from_ms, to_ms)
    return await call.desk.backfill(
        call.caller,
        job_id,
        from_ms=from_ms,
        to_ms=to_ms,
        backfill_id=body.backfill_id or f"{from_ms}-{to_ms}",
        preview=body.preview,
        idem=call.idem,
    )


def _span(query: Range, now_ms: int) -> tuple[int, int]:
    from_ms = bounded_ms(query.from_, "/from") if query.from_ else None
    to_ms = bounded_ms(query.to, "/to") if query.to else max(now_ms, from_ms or 0) + DAY_MS
    if from_ms is None:
        return min(now_ms, to_ms) - DAY_MS, to_ms
    require_order(from_ms, to_ms)
    return from_ms, to_ms


ROUTES = (
    Route("GET", "/v1/jobs/{jobId}/occurrences", list_occurrences, scope="read"),
    Route("POST", "/v1/jobs/{jobId}/backfill", backfill_job, scope="read"),
)
