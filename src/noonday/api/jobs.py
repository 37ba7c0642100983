"""/v1/jobs: what people ask for."""

from typing import Annotated, Literal

import msgspec

from noonday.api.call import Call
from noonday.api.query import Shown
from noonday.api.routing import Cursor, JobIdInPath, PageSize, Route
from noonday.model.job import JobSpec, JobType
from noonday.model.view import ExecutionView, JobPage, JobView

JobStateName = Literal["ACTIVE", "PAUSED", "COMPLETED", "CANCELLED"]


class JobFilter(Shown, frozen=True):
    state: JobStateName | None = None
    pool: str | None = None
    handler: str | None = None
    type: JobType | None = None
    tag: str | None = None
    name: str | None = None
    unique_key: str | None = None
    cursor: Cursor | None = None
    limit: PageSize = 50


class JobDetail(Shown, frozen=True):
    executions: Annotated[int, msgspec.Meta(ge=0, le=100, description="How many of the latest executions to show")] = 10


async def create_job(call: Call, body: JobSpec) -> JobView:
    """Create a job.

    201 means that it fires, at `nextFireAt`. With a `uniqueKey` that is in use, the job that has it is replaced instead;
    if that job has nothing to come the answer is 200, with the reason among its warnings, and a one-shot whose instant
    has fired already is refused with 409. A handler that no worker has registered
    yet is accepted with a warning; a pool that does not exist is refused. 429 if the tenant has as many jobs as its
    `maxJobs` says.
    """
    return await call.desk.create(call.caller, body, call.idem, traceparent=call.traceparent)


async def list_jobs(call: Call, query: JobFilter) -> JobPage:
    """List jobs, newest first, in pages.

    A page may be short although it has a `next`: its payloads have 4 MB together, as a rule. `view=summary` has no payloads.
    """
    said = msgspec.structs.asdict(query)
    return await call.reading.list_jobs(call.caller, summary=said.pop("view") == "summary", **said)


async def get_job(call: Call, job_id: JobIdInPath, query: JobDetail) -> JobView:
    """Show a job with its latest executions."""
    return await call.reading.get_job(call.caller, job_id, executions=query.executions, summary=query.view == "summary")


async def replace_job(call: Call, job_id: JobIdInPath, body: JobSpec, if_version: int | None) -> JobView:
    """Replace the whole definition of a job.

    An execution keeps the definition it was fired with. With If-Match the job is replaced only if it still has that
    version; else the answer is 412.
    """
    return await call.desk.replace(call.caller, job_id, body, if_version=if_version, idem=call.idem)


async def delete_job(call: Call, job_id: JobIdInPath) -> JobView:
    """Cancel a job: it fires no more. It stays readable, as CANCELLED, until retention takes it."""
    return await call.desk.delete(call.caller, job_id, call.idem)


async def pause_job(call: Call, job_id: JobIdInPath) -> JobView:
    """Pause a job: what falls due meanwhile is not run."""
    return await call.desk.pause(call.caller, job_id, call.idem)


async def resume_job(call: Call, job_id: JobIdInPath) -> JobView:
    """Resume a paused job. What was missed is made up for only if `catchUp.whilePaused` says so."""
    return await call.desk.resume(call.caller, job_id, call.idem)


async def trigger_job(call: Call, job_id: JobIdInPath) -> ExecutionView:
    """Run a job now, besides its schedule.

    With an Idempotency-Key it runs once, however often the request is sent. 409 if an execution is open and `overlap`
    is SKIP.
    """
    return await call.desk.trigger(call.caller, job_id, call.idem)


def _waits_for_nothing(job: JobView) -> bool:
    return job.next_fire_at is None


ROUTES = (
    Route(
        "POST", "/v1/jobs", create_job, scope="write", status=201, creates_jobs=True, made_nothing=_waits_for_nothing
    ),
    Route("GET", "/v1/jobs", list_jobs, scope="read"),
    Route("GET", "/v1/jobs/{jobId}", get_job, scope="read"),
    Route("PUT", "/v1/jobs/{jobId}", replace_job, scope="write"),
    Route("DELETE", "/v1/jobs/{jobId}", delete_job, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/pause", pause_job, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/resume", resume_job, scope="write"),
    Route("POST", "/v1/jobs/{jobId}/trigger", trigger_job, scope="write", status=201),
)
