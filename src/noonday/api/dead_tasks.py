"""/v1/task-dlq: calls of tasks that used up their attempts. A view of the dead letters of all jobs, in the words of tasks."""

from noonday.api.call import Call
from noonday.api.routing import Cursor, DeadLetterIdInPath, PageSize, Route
from noonday.model.view import BulkView
from noonday.tasks.wire import TaskDeadFilter, TaskDeadLetterPage, TaskDeadLetterView, TaskExecutionView


class DeadCallQuery(TaskDeadFilter, frozen=True, kw_only=True):
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_dead_tasks(call: Call, query: DeadCallQuery) -> TaskDeadLetterPage:
    """List calls that were given up, newest first, in pages.

    Those that were retried or sent again are not listed, archived ones only with `archived=true`. `error` is part of the last
    error, and `since` and `until` are about when it failed for the last time.
    """
    return await call.tasks.dead_letters.list_dead(call.caller, query, cursor=query.cursor, limit=query.limit)


async def get_dead_task(call: Call, id: DeadLetterIdInPath) -> TaskDeadLetterView:
    """Show a call that was given up, also if somebody has dealt with it since."""
    return await call.tasks.dead_letters.get(call.caller, id)


async def retry_dead_task(call: Call, id: DeadLetterIdInPath) -> TaskExecutionView:
    """Make a call that was given up again, as the task is now, with all its attempts."""
    return await call.tasks.dead_letters.retry(call.caller, id, call.idem)


async def archive_dead_task(call: Call, id: DeadLetterIdInPath) -> TaskDeadLetterView:
    """Archive a call that was given up: it is listed only when archived ones are asked for."""
    return await call.tasks.dead_letters.archive(call.caller, id, call.idem)


async def retry_dead_tasks(call: Call, body: TaskDeadFilter) -> BulkView:
    """Retry the calls that a filter names, up to 1,000 a call. `more` says that some are left."""
    return await call.tasks.dead_letters.retry_where(call.caller, body, call.idem)


async def archive_dead_tasks(call: Call, body: TaskDeadFilter) -> BulkView:
    """Archive the calls that a filter names, up to 1,000 a call. `more` says that some are left."""
    return await call.tasks.dead_letters.archive_where(call.caller, body, call.idem)


ROUTES = (
    Route("GET", "/v1/task-dlq", list_dead_tasks, scope="read"),
    Route("POST", "/v1/task-dlq/retry", retry_dead_tasks, scope="write", needs_key=True),
    Route("POST", "/v1/task-dlq/archive", archive_dead_tasks, scope="write", needs_key=True),
    Route("GET", "/v1/task-dlq/{id}", get_dead_task, scope="read"),
    Route("POST", "/v1/task-dlq/{id}/retry", retry_dead_task, scope="write", status=201, needs_key=True),
    Route("POST", "/v1/task-dlq/{id}/archive", archive_dead_task, scope="write", needs_key=True),
)
