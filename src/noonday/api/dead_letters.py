"""/v1/dead-letters: executions that failed for good."""

from noonday.api.context import RequestContext
from noonday.api.query import Query
from noonday.api.routing import Cursor, ExecutionIdInPath, PageSize, Route
from noonday.model.filters import DeadFilter, DeadFilterQuery, Instant, dead_query
from noonday.model.job import ms_of
from noonday.model.operation_view import DeadGroupList
from noonday.model.view import BulkView, DeadLetterPage, DeadLetterView, ExecutionView


class DeadLetterQuery(DeadFilter, frozen=True, kw_only=True):
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_dead_letters(context: RequestContext, query: DeadLetterQuery) -> DeadLetterPage:
    """List dead letters, newest first, in pages."""
    return await context.intake.dead_letters.list_dead_letters(
        context.caller, dead_query(query), cursor=query.cursor, limit=query.limit
    )


class DeadGroupQuery(Query, frozen=True):
    job_id: str | None = None
    pool: str | None = None
    handler: str | None = None
    since: Instant | None = None
    until: Instant | None = None


async def list_dead_letter_groups(context: RequestContext, query: DeadGroupQuery) -> DeadGroupList:
    """List open dead letters grouped by their error, the largest group first.

    Errors that differ only by quoted texts, numbers and ids share a `fingerprint`, which is a condition of the operations that
    retry or archive them. The newest 5,000 dead letters are examined, and 50 groups returned; `isLeast`: there are more.
    """
    where = DeadFilterQuery(query.job_id, query.pool, query.handler, ms_of(query.since), ms_of(query.until))
    return await context.intake.dead_groups.list_groups(context.caller, where)


async def retry_dead_letter(context: RequestContext, execution_id: ExecutionIdInPath) -> ExecutionView:
    """Retry a dead letter as a new execution, with a full number of attempts."""
    return await context.intake.dead_letters.retry(context.caller, execution_id, context.idem)


async def archive_dead_letter(context: RequestContext, execution_id: ExecutionIdInPath) -> DeadLetterView:
    """Archive a dead letter. Lists show it only with `archived=true`."""
    return await context.intake.dead_letters.archive(context.caller, execution_id, context.idem)


async def retry_dead_letters(context: RequestContext, body: DeadFilter) -> BulkView:
    """Retry up to 1,000 dead letters that match a filter. `more` is true if some are left."""
    return await context.intake.dead_letters.retry_where(context.caller, dead_query(body), context.idem)


async def archive_dead_letters(context: RequestContext, body: DeadFilter) -> BulkView:
    """Archive up to 1,000 dead letters that match a filter. `more` is true if some are left."""
    return await context.intake.dead_letters.archive_where(context.caller, dead_query(body), context.idem)


ROUTES = (
    Route("GET", "/v1/dead-letters", list_dead_letters, scope="read"),
    Route("GET", "/v1/dead-letters/groups", list_dead_letter_groups, scope="read"),
    Route("POST", "/v1/dead-letters/retry", retry_dead_letters, scope="write"),
    Route("POST", "/v1/dead-letters/archive", archive_dead_letters, scope="write"),
    Route("POST", "/v1/dead-letters/{executionId}/retry", retry_dead_letter, scope="write", status=201),
    Route("POST", "/v1/dead-letters/{executionId}/archive", archive_dead_letter, scope="write"),
)
