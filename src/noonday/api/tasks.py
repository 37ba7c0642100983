"""/v1/tasks: webhooks called on time. Names are snake_case here."""

from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.query import Query
from noonday.api.routing import ExecutionIdInPath, PageSize, Route, TaskIdInPath
from noonday.tasks.desk import LATEST, WITHIN_REACH
from noonday.tasks.wire import (
    ExecutionStatus,
    TaskExchangesView,
    TaskExecutionList,
    TaskList,
    TaskPatch,
    TaskSpec,
    TaskStatus,
    TaskView,
)

PageNumber = Annotated[int, msgspec.Meta(ge=1, le=WITHIN_REACH)]


class PageQuery(Query, frozen=True):
    status: TaskStatus | None = None
    page: PageNumber = 1
    limit: PageSize = 20


class LatestQuery(Query, frozen=True):
    status: ExecutionStatus | None = None
    limit: PageSize = LATEST


async def create_task(call: Call, body: TaskSpec) -> TaskView:
    """Create a task: a URL that is called once, or again and again.

    The call is made within a second of its time, at least once, and tried again as `retry` says. 429 if the tenant has as
    many jobs as its `maxJobs` says.
    """
    return await call.tasks.create(call.caller, body, call.idem, traceparent=call.traceparent)


async def list_tasks(call: Call, query: PageQuery) -> TaskList:
    """List tasks, newest first, in numbered pages.

    The newest 100,000 can be paged through. If there are more, `pagination` says so: `total_is_least` is true.
    """
    return await call.tasks.list_tasks(call.caller, status=query.status, page=query.page, limit=query.limit)


async def get_task(call: Call, task_id: TaskIdInPath) -> TaskView:
    """Show a task with its latest ten executions."""
    return await call.tasks.get(call.caller, task_id)


async def change_task(call: Call, task_id: TaskIdInPath, body: TaskPatch) -> TaskView:
    """Pause or resume a task, or change some of what it says.

    `status` is said alone: PAUSED, or SCHEDULED to go on, also after it was stopped. What else is said replaces what the
    task had; `payload` and `retry` are replaced whole. 409 if the task is over and `status` is asked for,
    or if it would call an endpoint that is disabled.
    """
    return await call.tasks.patch(call.caller, task_id, body, call.idem)


async def delete_task(call: Call, task_id: TaskIdInPath) -> None:
    """Delete a task: it is called no more, and cannot be read any more."""
    await call.tasks.delete(call.caller, task_id, call.idem)


async def list_task_executions(call: Call, task_id: TaskIdInPath, query: LatestQuery) -> TaskExecutionList:
    """List the latest executions of a task, newest first, with their attempts."""
    return await call.tasks.list_executions(call.caller, task_id, status=query.status, limit=query.limit)


async def get_task_execution(call: Call, task_id: TaskIdInPath, execution_id: ExecutionIdInPath) -> TaskExchangesView:
    """Show an execution of a task, with what was sent and what came back at each attempt."""
    return await call.tasks.get_execution(call.caller, task_id, execution_id)


ROUTES = (
    Route("POST", "/v1/tasks", create_task, scope="write", status=201, creates_jobs=True, needs_key=True),
    Route("GET", "/v1/tasks", list_tasks, scope="read"),
    Route("GET", "/v1/tasks/{task_id}", get_task, scope="read"),
    Route("PATCH", "/v1/tasks/{task_id}", change_task, scope="write", needs_key=True),
    Route("DELETE", "/v1/tasks/{task_id}", delete_task, scope="write", status=204, needs_key=True),
    Route("GET", "/v1/tasks/{task_id}/executions", list_task_executions, scope="read"),
    Route("GET", "/v1/tasks/{task_id}/executions/{execution_id}", get_task_execution, scope="read"),
)
