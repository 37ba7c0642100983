"""Client of /v1/executions: executions, their cancellation, and their results."""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from noonday.model.errors import Busy, ExecutionFailed, NoondayError
from noonday.model.execution import FINAL
from noonday.model.job_fields import Duration
from noonday.model.operation_view import ExecutionGroupList
from noonday.model.view import ExecutionLogsView, ExecutionPage, ExecutionView, JobView
from noonday.sdk.methods import ApiMethods, Listing
from noonday.sdk.payload import decoder_of
from noonday.sdk.spec import seconds_of
from noonday.sdk.transport import path_of

FIRST_POLL_SEC = 0.05
LAST_POLL_SEC = 1.0
WAIT_SEC = 30.0
"""Seconds after which the server responds although the execution has not ended."""
_ENDED = frozenset(state.name for state in FINAL)


class ResultTimeout(NoondayError, TimeoutError):
    """The timeout of `result()` passed. The execution continues."""

    code = "result-timeout"


class ExecutionMethods(ApiMethods):
    """Methods of `Client` on executions."""

    async def get_execution(self, execution_id: str, *, wait: float | None = None) -> ExecutionView:
        """Return an execution. With `wait`, return when it has ended, or after so many seconds (at most 60) in any state."""
        return await self._http.get(ExecutionView, path_of("executions", execution_id), {"wait": wait})

    async def get_execution_logs(self, execution_id: str) -> ExecutionLogsView:
        """Return what the handler of an execution logged, by attempt. The lines of an attempt are there once it has ended."""
        return await self._http.get(ExecutionLogsView, path_of("executions", execution_id, "logs"))

    def list_executions(
        self, job_id: str, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> Listing[ExecutionPage, ExecutionView]:
        query = {"state": state, "limit": limit}
        return self._list(
            ExecutionPage, lambda page: page.executions, path_of("jobs", job_id, "executions"), query, cursor
        )

    def search_executions(
        self,
        *,
        state: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        tag: str | None = None,
        worker: str | None = None,
        job_id: str | None = None,
        id_prefix: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        late_over: float | None = None,
        took_over: float | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> Listing[ExecutionPage, ExecutionView]:
        """List the executions of all jobs that match all conditions, newest first. `limit` is the page size.

        `since` and `until` bound the scheduled time; `late_over` and `took_over` are seconds. The executions are summaries:
        they have no progress, result, traceback, attempts and transitions.
        """
        query = {
            "state": state,
            "pool": pool,
            "handler": handler,
            "tag": tag,
            "worker": worker,
            "jobId": job_id,
            "idPrefix": id_prefix,
            "since": since,
            "until": until,
            "lateOver": late_over,
            "tookOver": took_over,
            "limit": limit,
        }
        return self._list(ExecutionPage, lambda page: page.executions, "/v1/executions", query, cursor)

    async def execution_groups(
        self,
        by: str = "waitingFor",
        *,
        state: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> ExecutionGroupList:
        """Group the newest executions by `pool`, `handler` or `waitingFor`, which groups pending ones."""
        query = {"by": by, "state": state, "pool": pool, "handler": handler, "since": since, "until": until}
        return await self._http.get(ExecutionGroupList, "/v1/executions/groups", query)

    async def cancel(self, execution_id: str) -> ExecutionView:
        """Request cancellation: immediate if the execution has not started, else when its handler reacts."""
        return await self._http.change(ExecutionView, "POST", path_of("executions", execution_id, "cancel"))

    async def result(self, of: str | ExecutionView | JobView, timeout: Duration | None = None, type: Any = Any) -> Any:
        """Wait for an execution to succeed, as `success`, and return its handler's result as a value of `type`."""
        ended = await self.success(of, timeout)
        return decoder_of(type, "result")(msgspec.json.encode(ended.result))

    async def success(self, of: str | ExecutionView | JobView, timeout: Duration | None = None) -> ExecutionView:
        """Wait for an execution to succeed, and return it.

        `of` is an execution, a job, or the id of either. A job stands for its latest execution; if it has none yet, the client
        waits for the first. Raises ExecutionFailed if the execution did not succeed, and ResultTimeout after `timeout`.
        """
        seconds = None if timeout is None else seconds_of(timeout, "/timeout")
        seen: list[ExecutionView] = []
        try:
            async with asyncio.timeout(seconds):
                ended = await self._ended(of, seen)
        except TimeoutError as late:
            raise result_timeout(of, seen[0] if seen else None, seconds or 0) from late
        if ended.state != "SUCCEEDED":
            raise _failure(ended)
        return ended

    async def _ended(self, of: str | ExecutionView | JobView, seen: list[ExecutionView]) -> ExecutionView:
        """Return the execution once it has ended. Keeps its latest view as the only item of `seen`."""
        waits = _poll_waits()
        execution_id = await self._first_execution(_id_of(of), waits) if _is_job(of) else _id_of(of)
        # The first look does not wait, so that a timeout can tell the state.
        execution = await self.get_execution(execution_id)
        seen[:] = [execution]
        while execution.state not in _ENDED:
            execution = await self._after_a_wait(execution_id)
            seen[:] = [execution]
            if execution.state not in _ENDED:
                # The server responds at once while it stops.
                await self._http.sleep(next(waits))
        return execution

    async def _after_a_wait(self, execution_id: str) -> ExecutionView:
        """Return the execution when it has ended, or after a while, or at once if too many requests wait."""
        try:
            return await self.get_execution(execution_id, wait=min(WAIT_SEC, self._http.timeout_sec / 2))
        except Busy:
            return await self.get_execution(execution_id)

    async def _first_execution(self, job_id: str, waits: Iterator[float]) -> str:
        while True:
            job = await self._http.get(JobView, path_of("jobs", job_id))
            if job.executions:
                return job.executions[0].execution_id
            if job.state in ("COMPLETED", "DEAD", "CANCELLED"):
                raise ExecutionFailed(
                    f"job {job_id} is {job.state} without an execution", job_id=job_id, state=job.state
                )
            await self._http.sleep(next(waits))


def result_timeout(of: str | ExecutionView | JobView, seen: ExecutionView | None, seconds: float) -> ResultTimeout:
    """Return the error of a wait for a result: what the execution was doing when it was last seen."""
    if seen is not None:
        kind = "job" if _is_job(of) else "execution"
        return ResultTimeout(
            f"{kind} {_id_of(of)} is {seen.state} (attempt {seen.attempt}) after {seconds:g} s; it continues"
        )
    if _is_job(of):
        return ResultTimeout(f"job {_id_of(of)} has no execution yet after {seconds:g} s")
    return ResultTimeout(f"the server has not answered about execution {_id_of(of)} after {seconds:g} s")


def _poll_waits() -> Iterator[float]:
    wait = FIRST_POLL_SEC
    while True:
        yield wait
        wait = min(2 * wait, LAST_POLL_SEC)


def _id_of(of: str | ExecutionView | JobView) -> str:
    if isinstance(of, str):
        return of
    return of.job_id if isinstance(of, JobView) else of.execution_id


def _is_job(of: str | ExecutionView | JobView) -> bool:
    """Return whether `of` is a job. Ids of jobs are UUIDs of version 7, ids of executions of version 8."""
    if not isinstance(of, str):
        return isinstance(of, JobView)
    try:
        return uuid.UUID(of).version == 7
    except ValueError:
        return False


def _failure(ended: ExecutionView) -> ExecutionFailed:
    reason = f": {ended.error.type}: {ended.error.message}" if ended.error else ""
    return ExecutionFailed(
        f"execution {ended.execution_id} is {ended.state} after attempt {ended.attempt}{reason}",
        execution_id=ended.execution_id,
        state=ended.state,
        attempt=ended.attempt,
        error=msgspec.to_builtins(ended.error),
    )
