"""Client of /v1/tasks, /v1/task-executions and /v1/task-dlq: scheduled webhook calls."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from noonday.model.tasks.wire import (
    ExecutionStatus,
    RequestedStatus,
    ResendList,
    ResendRequest,
    ResentView,
    TaskCallPage,
    TaskDeadFilter,
    TaskDeadLetterPage,
    TaskDeadLetterView,
    TaskExchangesView,
    TaskExecutionList,
    TaskExecutionView,
    TaskList,
    TaskPatch,
    TaskSpec,
    TaskStatus,
    TaskView,
)
from noonday.model.view import BulkView
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class TasksClient(ClientPart):
    """`client.tasks`. Errors and retries are as in `Client`; every change has an Idempotency-Key."""

    async def create(
        self, spec: TaskSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> TaskView:
        """Create a task from a TaskSpec, or from its fields by name: `create(type="RECURRING", payload=..., interval=...)`."""
        task = filled(TaskSpec, spec, fields)
        return await self._http.change(TaskView, "POST", "/v1/tasks", task, key=idempotency_key)

    async def get(self, task_id: str) -> TaskView:
        """Return a task with its latest 10 executions. Raises NotFound, also for a deleted task."""
        return await self._http.get(TaskView, path_of("tasks", task_id))

    async def list(
        self, *, status: TaskStatus | str | None = None, page: int | None = None, limit: int | None = None
    ) -> TaskList:
        """Return a page of tasks, newest first. Pages are numbered from 1; `pagination` has their number."""
        return await self._http.get(TaskList, "/v1/tasks", {"status": status, "page": page, "limit": limit})

    async def change(
        self, task_id: str, patch: TaskPatch | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> TaskView:
        """Change a task by a TaskPatch, or by its fields: `change(task_id, interval="daily at 08:00")`.

        `payload` and `retry` are replaced whole. Raises NotFound, and InvalidInput with every flaw.
        """
        body = filled(TaskPatch, patch, fields)
        return await self._http.change(TaskView, "PATCH", path_of("tasks", task_id), body, key=idempotency_key)

    async def pause(self, task_id: str) -> TaskView:
        """Pause a task. Raises Conflict if it has ended."""
        return await self.change(task_id, TaskPatch(status=RequestedStatus.PAUSED))

    async def resume(self, task_id: str) -> TaskView:
        """Resume a paused or stopped task. Raises Conflict if it has ended or its endpoint is disabled."""
        return await self.change(task_id, TaskPatch(status=RequestedStatus.SCHEDULED))

    async def delete(self, task_id: str, *, idempotency_key: str | None = None) -> None:
        """Delete a task. It makes no more calls and is no longer readable."""
        await self._http.change(type(None), "DELETE", path_of("tasks", task_id), key=idempotency_key)

    async def executions(
        self, task_id: str, *, status: ExecutionStatus | str | None = None, limit: int | None = None
    ) -> TaskExecutionList:
        """Return the latest executions of a task with their attempts, newest first."""
        query = {"status": status, "limit": limit}
        return await self._http.get(TaskExecutionList, path_of("tasks", task_id, "executions"), query)

    async def calls(self, task_id: str, execution_id: str) -> TaskExchangesView:
        """Return the request and response of each attempt of an execution. Raises NotFound."""
        return await self._http.get(TaskExchangesView, path_of("tasks", task_id, "executions", execution_id))

    # Calls of all tasks

    async def find_executions(
        self,
        *,
        status: ExecutionStatus | str | None = None,
        endpoint: str | None = None,
        task_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> TaskCallPage:
        """Return a page of the executions of all tasks, newest scheduled time first.

        `since` and `until` bound the scheduled time. `next` is the next `cursor`; a page may be short and still have one.
        """
        query = {"status": status, "endpoint": endpoint, "task_id": task_id, "since": since, "until": until}
        return await self._http.get(TaskCallPage, "/v1/task-executions", {**query, "cursor": cursor, "limit": limit})

    async def resend(self, task_id: str, execution_id: str, *, idempotency_key: str | None = None) -> ResentView:
        """Resend the call of an ended execution. Raises NotFound, and Conflict if it has not ended."""
        path = path_of("tasks", task_id, "executions", execution_id, "resend")
        return await self._http.change(ResentView, "POST", path, key=idempotency_key)

    async def resend_many(
        self, ids: Iterable[str], *, replay_id: str | None = None, idempotency_key: str | None = None
    ) -> ResendList:
        """Resend the calls of up to 500 executions. Returns one entry for each, in the same order.

        Under one `replay_id` each execution is resent once, even if the request is repeated.
        """
        body = ResendRequest(ids=tuple(ids), replay_id=replay_id)
        return await self._http.change(ResendList, "POST", "/v1/task-executions/resend", body, key=idempotency_key)

    # Dead letters

    async def dead_letters(
        self,
        where: TaskDeadFilter | None = None,
        /,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        **conditions: Any,
    ) -> TaskDeadLetterPage:
        """Return a page of the dead letters that match a `TaskDeadFilter`, newest first."""
        filters = msgspec.to_builtins(filled(TaskDeadFilter, where, conditions))
        return await self._http.get(TaskDeadLetterPage, "/v1/task-dlq", {**filters, "cursor": cursor, "limit": limit})

    async def dead_letter(self, execution_id: str) -> TaskDeadLetterView:
        """Return a dead letter, also after it was retried or archived. Raises NotFound."""
        return await self._http.get(TaskDeadLetterView, path_of("task-dlq", execution_id))

    async def retry_dead(self, execution_id: str, *, idempotency_key: str | None = None) -> TaskExecutionView:
        """Retry a dead letter with the current task definition. Raises Conflict if it was retried already."""
        path = path_of("task-dlq", execution_id, "retry")
        return await self._http.change(TaskExecutionView, "POST", path, key=idempotency_key)

    async def archive_dead(self, execution_id: str, *, idempotency_key: str | None = None) -> TaskDeadLetterView:
        """Archive a dead letter. Lists show it only with `archived=True`."""
        path = path_of("task-dlq", execution_id, "archive")
        return await self._http.change(TaskDeadLetterView, "POST", path, key=idempotency_key)

    async def retry_dead_where(
        self, where: TaskDeadFilter | None = None, /, *, idempotency_key: str | None = None, **conditions: Any
    ) -> BulkView:
        """Retry up to 1,000 dead letters that match the filter. `more` is true if some are left."""
        filters = filled(TaskDeadFilter, where, conditions)
        return await self._http.change(BulkView, "POST", "/v1/task-dlq/retry", filters, key=idempotency_key)

    async def archive_dead_where(
        self, where: TaskDeadFilter | None = None, /, *, idempotency_key: str | None = None, **conditions: Any
    ) -> BulkView:
        """Archive up to 1,000 dead letters that match the filter. `more` is true if some are left."""
        filters = filled(TaskDeadFilter, where, conditions)
        return await self._http.change(BulkView, "POST", "/v1/task-dlq/archive", filters, key=idempotency_key)
