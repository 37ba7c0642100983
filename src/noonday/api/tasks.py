"""/v1/tasks: scheduled webhook calls. Names are snake_case."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import Query
from noonday.api.routing import ExecutionIdInPath, PageSize, Route, TaskIdInPath
from noonday.model.tasks.wire import (
    ExecutionStatus,
    TaskExchangesView,
    TaskExecutionList,
    TaskList,
    TaskPatch,
    TaskSpec,
    TaskStatus,
    TaskView,
)
from noonday.tasks.task_service import LATEST, WITHIN_REACH

PageNumber = Annotated[int, msgspec.Meta(ge=1, le=WITHIN_REACH)]


class PageQuery(Query, frozen=True):
    status: TaskStatus | None = None
    page: PageNumber = 1
    limit: PageSize = 20


class LatestQuery(Query, frozen=True):
    status: ExecutionStatus | None = None
    limit: PageSize = LATEST


async def create_task(context: RequestContext, body: TaskSpec) -> TaskView:
    """Create a task: a one-time or recurring call of a URL.

    Each call starts within a second of its time, is made at least once, and is retried as `retry` specifies. 429 if the tenant
    has reached `maxJobs`.
    """
    return await context.tasks.create(context.caller, body, context.idem, traceparent=context.traceparent)


async def list_tasks(context: RequestContext, query: PageQuery) -> TaskList:
    """List tasks, newest first, in numbered pages.

    Pages reach the newest 100,000 tasks. If there are more, `total_is_least` in `pagination` is true.
    """
    return await context.tasks.list_tasks(context.caller, status=query.status, page=query.page, limit=query.limit)


async def get_task(context: RequestContext, task_id: TaskIdInPath) -> TaskView:
    """Get a task with its latest 10 executions."""
    return await context.tasks.get(context.caller, task_id)


async def change_task(context: RequestContext, task_id: TaskIdInPath, body: TaskPatch) -> TaskView:
    """Pause, resume or change a task.

    `status` must be the only field: PAUSED pauses the task, SCHEDULED resumes it, also after it stopped. Other fields replace
    those of the task; `payload` and `retry` are replaced whole. 409 if `status` is set and the task has ended, or if the endpoint
    is disabled.
    """
    return await context.tasks.patch(context.caller, task_id, body, context.idem)


async def delete_task(context: RequestContext, task_id: TaskIdInPath) -> None:
    """Delete a task. It makes no more calls and is no longer readable."""
    await context.tasks.delete(context.caller, task_id, context.idem)


async def list_task_executions(context: RequestContext, task_id: TaskIdInPath, query: LatestQuery) -> TaskExecutionList:
    """List the latest executions of a task with their attempts, newest first."""
    return await context.tasks.list_executions(context.caller, task_id, status=query.status, limit=query.limit)


async def get_task_execution(
    context: RequestContext, task_id: TaskIdInPath, execution_id: ExecutionIdInPath
) -> TaskExchangesView:
    """Get an execution of a task, with the request and response of each attempt."""
    return await context.tasks.get_execution(context.caller, task_id, execution_id)


ROUTES = (
    Route("POST", "/v1/tasks", create_task, scope="write", status=201, creates_jobs=True, needs_key=True),
    Route("GET", "/v1/tasks", list_tasks, scope="read"),
    Route("GET", "/v1/tasks/{task_id}", get_task, scope="read"),
    Route("PATCH", "/v1/tasks/{task_id}", change_task, scope="write", needs_key=True),
    Route("DELETE", "/v1/tasks/{task_id}", delete_task, scope="write", status=204, needs_key=True),
    Route("GET", "/v1/tasks/{task_id}/executions", list_task_executions, scope="read"),
    Route("GET", "/v1/tasks/{task_id}/executions/{execution_id}", get_task_execution, scope="read"),
)
