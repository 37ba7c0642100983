"""/v1/task-executions: executions of all tasks, and resending them."""

import msgspec

from noonday.api.context import RequestContext
from noonday.api.routing import Cursor, ExecutionIdInPath, PageSize, Route, TaskIdInPath
from noonday.model.filters import CallFilter, Instant
from noonday.model.job import ms_of
from noonday.model.tasks.wire import (
    STATE_OF,
    ExecutionStatus,
    ResendList,
    ResendRequest,
    ResentView,
    TaskCallPage,
    UrlOfEndpoint,
)
from noonday.tasks.definitions import endpoint_of_url


class CallQuery(msgspec.Struct, frozen=True, kw_only=True):
    status: ExecutionStatus | None = None
    endpoint: UrlOfEndpoint | None = None
    task_id: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_all_task_executions(context: RequestContext, query: CallQuery) -> TaskCallPage:
    """List the executions of all tasks, newest first, in pages.

    `since` and `until` bound the scheduled time. `endpoint` is a URL; its scheme, host and port select the tasks that call it
    now. A page scans at most 5,000 executions, so it may be short or empty and still have a `next`.
    """
    filters = CallFilter(
        query.task_id,
        endpoint_of_url(query.endpoint),
        None if query.status is None else STATE_OF[query.status].name,
        ms_of(query.since),
        ms_of(query.until),
    )
    return await context.tasks.calls.list_calls(context.caller, filters, cursor=query.cursor, limit=query.limit)


async def resend_task_execution(
    context: RequestContext, task_id: TaskIdInPath, execution_id: ExecutionIdInPath
) -> ResentView:
    """Resend the call of an ended execution as a new execution.

    The new execution sends the original request. If the task changed and the original is no longer stored, it sends the current
    one, and `with_present_payload` is true. Resending resolves the dead letter of the execution. 409 if the execution has not
    ended.
    """
    return await context.tasks.calls.resend(context.caller, task_id, execution_id, context.idem)


async def resend_task_executions(context: RequestContext, body: ResendRequest) -> ResendList:
    """Resend the calls of up to 500 executions of any tasks.

    The response has one entry per execution, in order: the new execution or a problem. Under one `replay_id` each execution is
    resent once, even if the request is repeated; executions created under that `replay_id` are not resent.
    """
    return await context.tasks.calls.resend_many(context.caller, body, context.idem)


ROUTES = (
    Route("GET", "/v1/task-executions", list_all_task_executions, scope="read"),
    Route("POST", "/v1/task-executions/resend", resend_task_executions, scope="write", needs_key=True),
    Route(
        "POST",
        "/v1/tasks/{task_id}/executions/{execution_id}/resend",
        resend_task_execution,
        scope="write",
        status=201,
        needs_key=True,
    ),
)
