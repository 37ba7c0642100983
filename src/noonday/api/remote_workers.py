"""Routes of remote workers: programs in any language that take executions over HTTP and run them."""

import asyncio
from typing import Annotated, Any

import msgspec

from noonday.api.context import RequestContext
from noonday.api.routing import ExecutionIdInPath, PoolName, Route
from noonday.model.errors import Conflict, LeaseLost
from noonday.model.execution import Failure
from noonday.model.job import JobSpec
from noonday.model.limits import FAILURE_CHARS, TRACEBACK_CHARS
from noonday.worker.remote import Lease, RemoteWorker, result_of
from noonday.worker.remote_pools import RemotePools
from noonday.worker.run import clean, timeout_of

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$"
_MOST_SNOOZE_SEC = 366 * 86_400
_MOST_ENQUEUED = 10_000
"""The greatest value of `limits.enqueued_jobs`."""

Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
LeaseId = Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="`lease` of the take")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=_MOST_SNOOZE_SEC)]


class TakeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A request for executions."""

    worker: Annotated[Name, msgspec.Meta(description="Name of the worker, such as its host and process id")]
    handlers: Annotated[
        list[Name], msgspec.Meta(min_length=1, max_length=100, description="Handlers that the worker has")
    ]
    limit: Annotated[int, msgspec.Meta(ge=1, le=32, description="Maximum number of executions to return")] = 1
    wait_sec: Annotated[int, msgspec.Meta(ge=1, le=60, description="Seconds to wait for the first execution")] = 20


class TakenExecution(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An execution that the worker has until its lease lapses."""

    execution_id: str
    """The same for every attempt. Use it as an idempotency key."""
    lease: str
    """Names this dispatch in all further requests."""
    lease_sec: float
    """Seconds within which the worker must start the execution, and then send a heartbeat or its end."""
    token: str
    """Fencing token, a decimal number. A later dispatch of the execution has a larger one."""
    job_id: str
    job_name: str | None
    pool: str
    handler: str
    attempt: int
    scheduled_at: str
    """Nominal time of the occurrence."""
    timeout_sec: float
    """Seconds from the start after which the execution has timed out."""
    traceparent: str
    payload: msgspec.Raw
    progress: Any
    """Latest progress of an earlier attempt; empty if there is none."""


class TakenExecutions(msgspec.Struct, frozen=True):
    executions: list[TakenExecution]


class LeaseRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    lease: LeaseId


class HeartbeatRequest(LeaseRef, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    progress: Any = None
    """Any JSON. The next attempt finds it."""


class LeaseView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of a lease that was extended."""

    lease_sec: float
    cancel: str | None
    """Reason why the handler must end, such as CANCELLED or TIMED_OUT; null if it may continue."""


class CompleteRequest(LeaseRef, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    result: Any = None
    enqueue: Annotated[
        list[JobSpec],
        msgspec.Meta(
            max_length=_MOST_ENQUEUED,
            description="Jobs to create once the execution has succeeded. They need the scope write, too.",
        ),
    ] = []


class FailRequest(LeaseRef, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="Kind of the error")] = "Error"
    message: str
    traceback: str | None = None
    retryable: bool = True
    """False: no attempt follows."""
    retry_after_sec: Seconds = 0
    """Minimum seconds until the next attempt."""
    cancelled: bool = False
    """True if the handler ended because a heartbeat said so."""


class SnoozeRequest(LeaseRef, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    seconds: Seconds


async def take_executions(context: RequestContext, pool: PoolName, body: TakeRequest) -> TakenExecutions:
    """Take executions of the caller's tenant. Waits until there is one, at most `waitSec`.

    The first take registers the handlers. An execution that is not started within `leaseSec` is given to another worker.
    """
    gone = asyncio.Event()
    watching = asyncio.create_task(_watch(context, gone))
    try:
        leases = await _pools(context).take(
            RemoteWorker(context.caller.tenant, body.worker),
            pool,
            frozenset(body.handlers),
            body.limit,
            body.wait_sec,
            gone,
        )
    finally:
        watching.cancel()
    return TakenExecutions([_taken(lease, _pools(context).runs.lease_sec) for lease in leases])


async def start_execution(context: RequestContext, execution_id: ExecutionIdInPath, body: LeaseRef) -> LeaseView:
    """Start a taken execution.

    Send it immediately before the handler begins: the timeout counts from here. A 409 means: do not begin.
    """
    runs = _pools(context).runs
    runs.start(context.caller.tenant, _lease_of(execution_id, body))
    return LeaseView(lease_sec=runs.lease_sec, cancel=None)


async def heartbeat_execution(
    context: RequestContext, execution_id: ExecutionIdInPath, body: HeartbeatRequest
) -> LeaseView:
    """Extend the lease of an execution, and report progress.

    The response says whether the handler must end. Send one at least every third of `leaseSec`. Without one, the worker counts
    as lost, which uses up the attempt.
    """
    runs = _pools(context).runs
    cancel = runs.heartbeat(context.caller.tenant, _lease_of(execution_id, body), body.progress)
    return LeaseView(lease_sec=runs.lease_sec, cancel=cancel)


async def complete_execution(context: RequestContext, execution_id: ExecutionIdInPath, body: CompleteRequest) -> None:
    """End an execution with its result. The request may be repeated.

    The jobs in `enqueue` are created once the success is recorded, and never twice. They need the scope `write` beside `worker`.
    """
    if body.enqueue:
        context.caller.require("write")
    lease, result = _lease_of(execution_id, body), result_of(body.result)
    _pools(context).runs.complete(context.caller.tenant, lease, result, body.enqueue)


async def fail_execution(context: RequestContext, execution_id: ExecutionIdInPath, body: FailRequest) -> None:
    """End an attempt with an error. The retry policy decides what follows. The request may be repeated."""
    failure = Failure(
        clean(body.type, FAILURE_CHARS),
        clean(body.message, FAILURE_CHARS),
        None if body.traceback is None else clean(body.traceback[-TRACEBACK_CHARS:], TRACEBACK_CHARS),
        body.retryable,
    )
    lease = _lease_of(execution_id, body)
    _pools(context).runs.fail(context.caller.tenant, lease, failure, body.retry_after_sec, is_cancelled=body.cancelled)


async def snooze_execution(context: RequestContext, execution_id: ExecutionIdInPath, body: SnoozeRequest) -> None:
    """Run an execution again in some seconds. It uses up no attempt. The request may be repeated."""
    _pools(context).runs.snooze(context.caller.tenant, _lease_of(execution_id, body), body.seconds)


async def _watch(context: RequestContext, gone: asyncio.Event) -> None:
    await context.wait_until_gone()
    gone.set()


def _pools(context: RequestContext) -> RemotePools:
    if context.services.remote is None:
        raise Conflict("this process serves no remote workers: start it with `noonday serve --roles api,remote`")
    return context.services.remote


def _lease_of(execution_id: str, body: LeaseRef) -> str:
    if execution_id not in body.lease.split("."):
        raise LeaseLost(f"the lease is not one of execution {execution_id}")
    return body.lease


def _taken(lease: Lease, lease_sec: float) -> TakenExecution:
    context, dispatch = lease.run.context, lease.dispatch
    assert context is not None
    return TakenExecution(
        execution_id=dispatch.execution_id,
        lease=lease.id,
        lease_sec=lease_sec,
        token=str(context.token),
        job_id=dispatch.job_id,
        job_name=dispatch.name,
        pool=dispatch.pool,
        handler=dispatch.handler,
        attempt=dispatch.attempt,
        scheduled_at=context.scheduled_at.isoformat().replace("+00:00", "Z"),
        timeout_sec=timeout_of(lease.run),
        traceparent=context.traceparent,
        payload=msgspec.Raw(lease.payload),
        progress=context.progress,
    )


ROUTES = (
    Route("POST", "/v1/pools/{pool}/take", take_executions, scope="worker"),
    Route("POST", "/v1/executions/{executionId}/start", start_execution, scope="worker"),
    Route("POST", "/v1/executions/{executionId}/heartbeat", heartbeat_execution, scope="worker"),
    Route("POST", "/v1/executions/{executionId}/complete", complete_execution, scope="worker", status=204),
    Route("POST", "/v1/executions/{executionId}/fail", fail_execution, scope="worker", status=204),
    Route("POST", "/v1/executions/{executionId}/snooze", snooze_execution, scope="worker", status=204),
)
