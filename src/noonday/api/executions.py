"""/v1/executions: executions of jobs."""

from typing import Literal

from noonday.api.context import RequestContext
from noonday.api.query import ViewQuery
from noonday.api.routing import Cursor, ExecutionIdInPath, JobIdInPath, PageSize, Route
from noonday.model.view import ExecutionLogsView, ExecutionPage, ExecutionView

# No execution stays in FAILED: it moves on to the next attempt or to DEAD.
ExecutionStateName = Literal["PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"]


class ExecutionQuery(ViewQuery, frozen=True):
    state: ExecutionStateName | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_executions(context: RequestContext, job_id: JobIdInPath, query: ExecutionQuery) -> ExecutionPage:
    """List the executions of a job, newest first, in pages.

    A page has about 4 MB of results and progress at most, so it may be short and still have a `next`. `view=summary` omits both.
    """
    return await context.intake.executions.list_executions(
        context.caller,
        job_id,
        state=query.state,
        cursor=query.cursor,
        limit=query.limit,
        summary=query.view == "summary",
    )


async def get_execution(context: RequestContext, execution_id: ExecutionIdInPath, query: ViewQuery) -> ExecutionView:
    """Get an execution: state, progress, result or error, attempts and transitions."""
    return await context.intake.executions.get(context.caller, execution_id, summary=query.view == "summary")


async def get_execution_logs(context: RequestContext, execution_id: ExecutionIdInPath) -> ExecutionLogsView:
    """Get what the handler of an execution logged, by attempt.

    Each attempt has its last `limits.log_bytes`, and an execution its last 10 dispatches that logged. The lines of an attempt are
    there once it has ended.
    """
    return await context.intake.executions.get_logs(context.caller, execution_id)


async def cancel_execution(context: RequestContext, execution_id: ExecutionIdInPath) -> ExecutionView:
    """Request the cancellation of an execution.

    A pending execution never starts. A running one is notified, and ends when its handler reacts.
    """
    return await context.intake.executions.cancel(context.caller, execution_id, context.idem)


ROUTES = (
    Route("GET", "/v1/jobs/{jobId}/executions", list_executions, scope="read"),
    Route("GET", "/v1/executions/{executionId}", get_execution, scope="read"),
    Route("GET", "/v1/executions/{executionId}/logs", get_execution_logs, scope="read"),
    Route("POST", "/v1/executions/{executionId}/cancel", cancel_execution, scope="write", status=202),
)
