"""/v1/dead-letters: executions that used up their attempts."""

from noonday.api.call import Call
from noonday.api.routing import Cursor, ExecutionIdInPath, PageSize, Route
from noonday.intake.filters import DeadFilter
from noonday.model.view import BulkView, DeadLetterPage, DeadLetterView, ExecutionView


class DeadLetterQuery(DeadFilter, frozen=True, kw_only=True):
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_dead_letters(call: Call, query: DeadLetterQuery) -> DeadLetterPage:
    """List dead letters, newest first, in pages."""
    return await call.reading.dead_letters(call.caller, query, cursor=query.cursor, limit=query.limit)


async def retry_dead_letter(call: Call, execution_id: ExecutionIdInPath) -> ExecutionView:
    """Run a dead letter again, as a new execution with all its attempts."""
    return await call.desk.retry_dead(call.caller, execution_id, call.idem)


async def archive_dead_letter(call: Call, execution_id: ExecutionIdInPath) -> DeadLetterView:
    """Archive a dead letter: it is listed only when archived ones are asked for."""
    return await call.desk.archive_dead(call.caller, execution_id, call.idem)


async def retry_dead_letters(call: Call, body: DeadFilter) -> BulkView:
    """Retry the dead letters that a filter names, up to 1,000 a call. `more` says that some are left."""
    return await call.desk.retry_dead_where(call.caller, body, call.idem)


async def archive_dead_letters(call: Call, body: DeadFilter) -> BulkView:
    """Archive the dead letters that a filter names, up to 1,000 a call. `more` says that some are left."""
    return await call.desk.archive_dead_where(call.caller, body, call.idem)


ROUTES = (
    Route("GET", "/v1/dead-letters", list_dead_letters, scope="read"),
    Route("POST", "/v1/dead-letters/retry", retry_dead_letters, scope="write"),
    Route("POST", "/v1/dead-letters/archive", archive_dead_letters, scope="write"),
    Route("POST", "/v1/dead-letters/{executionId}/retry", retry_dead_letter, scope="write", status=201),
    Route("POST", "/v1/dead-letters/{executionId}/archive", archive_dead_letter, scope="write"),
)
