"""/v1/executions: runs of jobs."""

from typing import Literal

from noonday.api.call import Call
from noonday.api.query import Shown
from noonday.api.routing import Cursor, ExecutionIdInPath, JobIdInPath, PageSize, Route
from noonday.model.view import ExecutionPage, ExecutionView

# A failed attempt is on its way to the next one, or to DEAD: no execution rests there.
ExecutionStateName = Literal["PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"]


class ExecutionFilter(Shown, frozen=True):
    state: ExecutionStateName | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


async def list_executions(call: Call, job_id: JobIdInPath, query: ExecutionFilter) -> ExecutionPage:
    """List the executions of a job, newest first, in pages.

    A page may be short although it has a `next`: results and progress have 4 MB together, as a rule. `view=summary` has neither.
    """
    return await call.reading.list_executions(
        call.caller,
        job_id,
        state=query.state,
        cursor=query.cursor,
        limit=query.limit,
        summary=query.view == "summary",
    )


async def get_execution(call: Call, execution_id: ExecutionIdInPath, query: Shown) -> ExecutionView:
    """Show an execution: its state, progress, result or error, attempts and transitions."""
    return await call.reading.get_execution(call.caller, execution_id, summary=query.view == "summary")


async def cancel_execution(call: Call, execution_id: ExecutionIdInPath) -> ExecutionView:
    """Ask for an execution to be cancelled.

    One that has not started will not. A running one is told, and ends as its handler lets it.
    """
    return await call.desk.cancel_execution(call.caller, execution_id, call.idem)


ROUTES = (
    Route("GET", "/v1/jobs/{jobId}/executions", list_executions, scope="read"),
    Route("GET", "/v1/executions/{executionId}", get_execution, scope="read"),
    Route("POST", "/v1/executions/{executionId}/cancel", cancel_execution, scope="write", status=202),
)
