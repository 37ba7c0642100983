"""/v1/task-executions: the calls of all tasks, and how they are made once more."""

import msgspec

from noonday.api.call import Call
from noonday.api.routing import Cursor, ExecutionIdInPath, PageSize, Route, TaskIdInPath
from noonday.intake.filters import Instant
from noonday.model.job import ms_of
from noonday.ports.archive import CallFilter
from noonday.tasks.kept_calls import endpoint_said
from noonday.tasks.wire import (
    STATE_OF,
    ExecutionStatus,
    ResendList,
    ResendRequest,
    ResentView,
    TaskCallPage,
    UrlOfEndpoint,
)


class CallQuery(msgspec.Struct, frozen=True, kw_only=True):
    status: ExecutionStatus | None = None
    endpoint: UrlOfEndpoint | None = None
    task_id: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_all_task_executions(call: Call, query: CallQuery) -> TaskCallPage:
    """List the executions of all tasks, newest first, in pages.

    `since` and `until` are about the time they were scheduled for, `endpoint` is a URL of which scheme, host and port count:
    whom the task calls at present. A page may be short, or even empty, although it has a `next`: 5,000 executions are looked at.
    """
    where = CallFilter(
        query.task_id,
        endpoint_said(query.endpoint),
        None if query.status is None else STATE_OF[query.status].name,
        ms_of(query.since),
        ms_of(query.until),
    )
    return await call.tasks.calls.list_calls(call.caller, where, cursor=query.cursor, limit=query.limit)


async def resend_task_execution(call: Call, task_id: TaskIdInPath, execution_id: ExecutionIdInPath) -> ResentView:
    """Make the call of an execution once more, however it ended, as a new execution.

    It says what it said then, as long as that is kept; `with_present_payload` is true if it is not, because the task was changed
    since. If it was given up, that is resolved. 409 if it has not ended.
    """
    return await call.tasks.calls.resend(call.caller, task_id, execution_id, call.idem)


async def resend_task_executions(call: Call, body: ResendRequest) -> ResendList:
    """Make the calls of up to 500 executions once more, of whatever tasks.

    Each is answered in its place: what it was sent again as, or why not. Under one `replay_id` each is sent again once, however
    often it is asked for, and nothing that was made under it.
    """
    return await call.tasks.calls.resend_many(call.caller, body, call.idem)


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
