"""/v1/task-dlq: dead letters of tasks. Names are snake_case."""

from noonday.api.context import RequestContext
from noonday.api.routing import Cursor, DeadLetterIdInPath, PageSize, Route
from noonday.model.tasks.wire import TaskDeadFilter, TaskDeadLetterPage, TaskDeadLetterView, TaskExecutionView
from noonday.model.view import BulkView
from noonday.tasks.dead_letters import dead_query_of


class DeadCallQuery(TaskDeadFilter, frozen=True, kw_only=True):
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_dead_tasks(context: RequestContext, query: DeadCallQuery) -> TaskDeadLetterPage:
    """List dead letters of tasks, newest first, in pages.

    Retried and resent ones are omitted; archived ones are listed only with `archived=true`. `error` matches part of the last
    error. `since` and `until` bound the time of the last failure.
    """
    return await context.tasks.dead_letters.list_dead(context.caller, query, cursor=query.cursor, limit=query.limit)


async def get_dead_task(context: RequestContext, id: DeadLetterIdInPath) -> TaskDeadLetterView:
    """Get a dead letter of a task, also after it was retried or archived."""
    return await context.tasks.dead_letters.get(context.caller, id)


async def retry_dead_task(context: RequestContext, id: DeadLetterIdInPath) -> TaskExecutionView:
    """Retry a dead letter with the current task definition and a full number of attempts."""
    return await context.tasks.dead_letters.retry(context.caller, id, context.idem)


async def archive_dead_task(context: RequestContext, id: DeadLetterIdInPath) -> TaskDeadLetterView:
    """Archive a dead letter of a task. Lists show it only with `archived=true`."""
    return await context.tasks.dead_letters.archive(context.caller, id, context.idem)


async def retry_dead_tasks(context: RequestContext, body: TaskDeadFilter) -> BulkView:
    """Retry up to 1,000 dead letters of tasks that match a filter. `more` is true if some are left."""
    return await context.intake.dead_letters.retry_where(context.caller, dead_query_of(body), context.idem)


async def archive_dead_tasks(context: RequestContext, body: TaskDeadFilter) -> BulkView:
    """Archive up to 1,000 dead letters of tasks that match a filter. `more` is true if some are left."""
    return await context.intake.dead_letters.archive_where(context.caller, dead_query_of(body), context.idem)


ROUTES = (
    Route("GET", "/v1/task-dlq", list_dead_tasks, scope="read"),
    Route("POST", "/v1/task-dlq/retry", retry_dead_tasks, scope="write", needs_key=True),
    Route("POST", "/v1/task-dlq/archive", archive_dead_tasks, scope="write", needs_key=True),
    Route("GET", "/v1/task-dlq/{id}", get_dead_task, scope="read"),
    Route("POST", "/v1/task-dlq/{id}/retry", retry_dead_task, scope="write", status=201, needs_key=True),
    Route("POST", "/v1/task-dlq/{id}/archive", archive_dead_task, scope="write", needs_key=True),
)
