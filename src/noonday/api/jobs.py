"""/v1/jobs: jobs and their schedules."""

from typing import Annotated, Any, Literal

import msgspec

from noonday.api.context import RequestContext
from noonday.api.instants import bounded_ms
from noonday.api.job_patch import JobPatch
from noonday.api.query import ViewQuery
from noonday.api.reply import JSON
from noonday.api.routing import Cursor, JobIdInPath, PageSize, Route
from noonday.model.filters import PauseRequest, RunRequest
from noonday.model.job import JobSpec, JobType
from noonday.model.view import ExecutionView, JobPage, JobView

MERGE_PATCH = "application/merge-patch+json"
JobStateName = Literal["ACTIVE", "PAUSED", "COMPLETED", "DEAD", "CANCELLED"]


class JobQuery(ViewQuery, frozen=True):
    state: JobStateName | None = None
    pool: str | None = None
    handler: str | None = None
    type: JobType | None = None
    tag: str | None = None
    name: str | None = None
    unique_key: str | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


class JobDetail(ViewQuery, frozen=True):
    executions: Annotated[int, msgspec.Meta(ge=0, le=100, description="Number of latest executions to return")] = 10


async def create_job(context: RequestContext, body: JobSpec) -> JobView:
    """Create a job.

    201 means that the job fires, at `nextFireAt`. If `uniqueKey` is in use, the job that has it is replaced. If that job will not
    fire again, the response is 200 with the reason in `warnings`; a one-time job that has already fired is rejected with 409. A
    handler that no worker has registered yet is accepted with a warning. An unknown pool is rejected. 429 if the tenant has
    reached `maxJobs`.
    """
    return await context.intake.jobs.create(context.caller, body, context.idem, traceparent=context.traceparent)


async def list_jobs(context: RequestContext, query: JobQuery) -> JobPage:
    """List jobs, newest first, in pages.

    A page has about 4 MB of payloads at most, so it may be short and still have a `next`. `view=summary` omits payloads.
    """
    filters = msgspec.structs.asdict(query)
    return await context.intake.job_queries.list_jobs(
        context.caller, summary=filters.pop("view") == "summary", **filters
    )


async def get_job(context: RequestContext, job_id: JobIdInPath, query: JobDetail) -> JobView:
    """Get a job with its latest executions."""
    return await context.intake.job_queries.get_job(
        context.caller, job_id, executions=query.executions, summary=query.view == "summary"
    )


async def replace_job(
    context: RequestContext, job_id: JobIdInPath, body: msgspec.Raw, if_version: int | None
) -> JobView:
    """Replace the whole definition of a job.

    Started executions keep the definition that they were fired with. With If-Match, the job is replaced only if it has that
    version; otherwise the response is 412. The body may be what GET returned: its read-only fields are ignored. If `state` or
    `version` differ from those of the job, `warnings` says so; `jobId` and `tenant` of another job are rejected with 422.
    """
    return await context.intake.changer.replace(context.caller, job_id, body, if_version=if_version, idem=context.idem)


async def change_job(
    context: RequestContext, job_id: JobIdInPath, body: dict[str, Any], if_version: int | None
) -> JobView:
    """Change some fields of a job.

    The body is a JSON merge patch (RFC 7396) of the job's definition: fields that it names are set, also inside objects such as
    `catchUp` and an object in `payload`; null removes a field, which then has its default. A one-time or delayed job keeps its
    time unless `type`, `runAt` or `delaySec` change. Executions are treated as by PUT. With If-Match, the job is changed only if
    it has that version; otherwise the response is 412.
    """
    return await context.intake.changer.patch(context.caller, job_id, body, if_version=if_version, idem=context.idem)


async def delete_job(context: RequestContext, job_id: JobIdInPath) -> JobView:
    """Cancel a job. It stays readable, as CANCELLED, until its retention ends."""
    return await context.intake.jobs.delete(context.caller, job_id, context.idem)


async def pause_job(context: RequestContext, job_id: JobIdInPath, body: PauseRequest) -> JobView:
    """Pause a job. It does not fire while it is paused.

    With `until`, the job is resumed at that instant, once, even if no process runs then: `pausedUntil` shows it. A resume before
    then takes it back, and another pause replaces it; without `until`, the job stays paused until it is resumed. 422 if `until`
    is not in the future or more than 10 years ahead. 409 for a job that was halted.
    """
    until_ms = None if body.until is None else bounded_ms(body.until, "/until")
    return await context.intake.jobs.pause(context.caller, job_id, context.idem, until_ms=until_ms)


async def resume_job(context: RequestContext, job_id: JobIdInPath) -> JobView:
    """Resume a paused job. Missed occurrences run only if `catchUp.whilePaused` is set."""
    return await context.intake.jobs.resume(context.caller, job_id, context.idem)


async def trigger_job(context: RequestContext, job_id: JobIdInPath, body: RunRequest) -> ExecutionView:
    """Run a job now, in addition to its schedule.

    `payload` replaces the job's payload for this run. With an Idempotency-Key it runs once, even if the request is repeated. 409
    if an execution is open and `overlap` is SKIP, unless `force` is true.
    """
    return await context.intake.jobs.trigger(context.caller, job_id, context.idem, request=body)


def _has_no_next_fire(job: JobView) -> bool:
    return job.next_fire_at is None


ROUTES = (
    Route(
        "POST", "/v1/jobs", create_job, scope="write", status=201, creates_jobs=True, created_nothing=_has_no_next_fire
    ),
    Route("GET", "/v1/jobs", list_jobs, scope="read"),
    Route("GET", "/v1/jobs/{jobId}", get_job, scope="read"),
    Route("PUT", "/v1/jobs/{jobId}", replace_job, scope="write", body_schema=JobSpec),
    Route("PATCH", "/v1/jobs/{jobId}", change_job, scope="write", accepts=(MERGE_PATCH, JSON), body_schema=JobPatch),
    Route("DELETE", "/v1/jobs/{jobId}", delete_job, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/pause", pause_job, scope="write", body_is_optional=True),
    Route("POST", "/v1/jobs/{jobId}/resume", resume_job, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/trigger", trigger_job, scope="write", status=201, body_is_optional=True),
)
