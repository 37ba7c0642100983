"""/v1/executions: executions of jobs."""

from typing import Annotated, Literal

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import Query, ViewQuery
from noonday.api.routing import Cursor, ExecutionIdInPath, JobIdInPath, PageSize, Route
from noonday.model.errors import InvalidInput
from noonday.model.filters import Instant
from noonday.model.found_executions import ExecutionFilter, GroupedBy
from noonday.model.job import ms_of
from noonday.model.operation_view import ExecutionGroupList
from noonday.model.view import ExecutionLogsView, ExecutionPage, ExecutionView

# No execution stays in FAILED: it moves on to the next attempt or to DEAD.
ExecutionStateName = Literal["PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"]


class ExecutionQuery(ViewQuery, frozen=True):
    state: ExecutionStateName | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


class ExecutionDetail(ViewQuery, frozen=True):
    wait: Annotated[
        float, msgspec.Meta(ge=0, le=60, description="Seconds to wait for the end of the execution before the response")
    ] = 0


Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ExecutionSearchQuery(Query, frozen=True):
    state: ExecutionStateName | None = None
    pool: str | None = None
    handler: str | None = None
    tag: str | None = None
    worker: str | None = None
    job_id: str | None = None
    id_prefix: Annotated[str, msgspec.Meta(max_length=36, description="Beginning of the id")] | None = None
    since: Instant | None = None
    until: Instant | None = None
    late_over: Seconds | None = None
    took_over: Seconds | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


async def search_executions(context: RequestContext, query: ExecutionSearchQuery) -> ExecutionPage:
    """List the executions of all jobs, newest first, in pages.

    `since` and `until` bound the scheduled time. `lateOver` selects executions whose first attempt started more than so many
    seconds after it was due, or is overdue by more; `tookOver` those whose latest attempt took longer, or runs for longer. The
    executions have no progress, result, traceback, attempts and transitions. A page scans at most 5,000 executions, so it may be
    short or empty and still have a `next`.
    """
    where = ExecutionFilter(
        job_id=query.job_id,
        id_prefix=query.id_prefix,
        state=query.state,
        pool=query.pool,
        handler=query.handler,
        tag=query.tag,
        worker=query.worker,
        since_ms=ms_of(query.since),
        until_ms=ms_of(query.until),
        late_over_ms=_ms(query.late_over),
        took_over_ms=_ms(query.took_over),
    )
    return await context.intake.execution_queries.search(context.caller, where, cursor=query.cursor, limit=query.limit)


class ExecutionGroupQuery(Query, frozen=True):
    by: GroupedBy
    state: ExecutionStateName | None = None
    pool: str | None = None
    handler: str | None = None
    since: Instant | None = None
    until: Instant | None = None


async def group_executions(context: RequestContext, query: ExecutionGroupQuery) -> ExecutionGroupList:
    """Group executions by pool, by handler, or by what they wait for: the largest 20 groups.

    `by=waitingFor` groups pending executions; `text` is the sentence that explains the oldest of a group. The newest 5,000
    executions are examined; `isLeast` is true if there are more.
    """
    state: str | None = query.state
    if query.by is GroupedBy.WAITING_FOR:
        if state not in (None, "PENDING"):
            raise InvalidInput.of("/state", "only PENDING executions wait: omit `state`", state, allowed=["PENDING"])
        state = "PENDING"
    where = ExecutionFilter(
        state=state,
        pool=query.pool,
        handler=query.handler,
        since_ms=ms_of(query.since),
        until_ms=ms_of(query.until),
    )
    return await context.intake.execution_queries.groups(context.caller, where, query.by)


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


async def wait_for_end(context: RequestContext, execution_id: ExecutionIdInPath, query: ExecutionDetail) -> None:
    """Wait until the execution has ended, for at most `wait` seconds."""
    if query.wait:
        await context.intake.execution_ends.wait(context.caller, execution_id, query.wait)


async def get_execution(
    context: RequestContext, execution_id: ExecutionIdInPath, query: ExecutionDetail
) -> ExecutionView:
    """Get an execution: state, progress, result or error, attempts and transitions.

    With `wait`, the response comes when the execution has ended, or after so many seconds with its present state. A process
    admits 100 waiting requests of a tenant and 1,000 in total; beyond that the response is 503.
    """
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


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


ROUTES = (
    Route("GET", "/v1/executions", search_executions, scope="read"),
    Route("GET", "/v1/executions/groups", group_executions, scope="read"),
    Route("GET", "/v1/jobs/{jobId}/executions", list_executions, scope="read"),
    Route("GET", "/v1/executions/{executionId}", get_execution, scope="read", before_read=wait_for_end),
    Route("GET", "/v1/executions/{executionId}/logs", get_execution_logs, scope="read"),
    Route("POST", "/v1/executions/{executionId}/cancel", cancel_execution, scope="write", status=202),
)
