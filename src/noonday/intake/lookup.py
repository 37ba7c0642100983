"""Lookup of jobs and executions by id."""

from noonday.model.caller import Caller
from noonday.model.errors import NotFound
from noonday.model.execution import Execution
from noonday.model.ids import ExecutionId, JobId
from noonday.model.rows import JobRow
from noonday.ports.queries import QueryStore


async def get_job_row(query_store: QueryStore, caller: Caller, job_id: str) -> JobRow:
    """Return a job of the caller's tenant. Raises NotFound."""
    row = await query_store.find_job(caller.tenant, JobId(job_id))
    if row is None:
        raise NotFound(f"no job {job_id}", jobId=job_id)
    return row


async def get_execution_row(query_store: QueryStore, caller: Caller, execution_id: str) -> Execution:
    """Return an execution of the caller's tenant. Raises NotFound."""
    row = await query_store.find_execution(caller.tenant, ExecutionId(execution_id))
    if row is None:
        raise NotFound(f"no execution {execution_id}", executionId=execution_id)
    return row
