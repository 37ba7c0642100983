"""What can be asked of a server about tasks: webhooks that are called on time."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from noonday.model.view import BulkView
from noonday.sdk.fields import filled
from noonday.sdk.transport import Transport, path_of
from noonday.tasks.wire import (
    ExecutionStatus,
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
    WishedStatus,
)


class Tasks:
    """`client.tasks`. Errors and retries are those of the client; every change carries an Idempotency-Key."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    async def create(
        self, spec: TaskSpec | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> TaskView:
        """Create a task from a TaskSpec, or from its fields by name: `create(type="RECURRING", payload=..., interval=...)`."""
        said = filled(TaskSpec, spec, fields)
        return await self._http.change(TaskView, "POST", "/v1/tasks", said, key=idempotency_key)

    async def get(self, task_id: str) -> TaskView:
        """A task with its latest ten executions. Raises NotFound, also for one that was deleted."""
        return await self._http.get(TaskView, path_of("tasks", task_id))

    async def list(
        self, *, status: TaskStatus | str | None = None, page: int | None = None, limit: int | None = None
    ) -> TaskList:
        """One page of the tasks, newest first; pages are numbered from 1, and `pagination` says how many there are."""
        return await self._http.get(TaskList, "/v1/tasks", {"status": status, "page": page, "limit": limit})

    async def change(
        self, task_id: str, patch: TaskPatch | None = None, /, *, idempotency_key: str | None = None, **fields: Any
    ) -> TaskView:
        """Change what a TaskPatch says, or what is said by name: `change(task_id, interval="daily at 08:00")`.

        `payload` and `retry` are replaced whole. Raises NotFound, and InvalidInput with every flaw.
        """
        said = filled(TaskPatch, patch, fields)
        return await self._http.change(TaskView, "PATCH", path_of("tasks", task_id), said, key=idempotency_key)

    async def pause(self, task_id: str) -> TaskView:
        """No calls until it is resumed. Raises Conflict if the task is over."""
        return await self.change(task_id, TaskPatch(status=WishedStatus.PAUSED))

    async def resume(self, task_id: str) -> TaskView:
        """Go on, also after the receiver has stopped it. Raises Conflict if the task is over, or its endpoint is disabled."""
        return await self.change(task_id, TaskPatch(status=WishedStatus.SCHEDULED))

    async def delete(self, task_id: str, *, idempotency_key: str | None = None) -> None:
        """No more calls, for good: the task cannot be read any more."""
        await self._http.change(type(None), "DELETE", path_of("tasks", task_id), key=idempotency_key)

    async def executions(
        self, task_id: str, *, status: ExecutionStatus | str | None = None, limit: int | None = None
    ) -> TaskExecutionList:
        """The latest executions of a task, newest first, with their attempts."""
        query = {"status": status, "limit": limit}
        return await self._http.get(TaskExecutionList, path_of("tasks", task_id, "executions"), query)

    async def calls(self, task_id: str, execution_id: str) -> TaskExchangesView:
        """What was sent and what came back at each attempt of an execution. Raises NotFound."""
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
        """One page of the executions of all tasks, newest first by the time they were scheduled for, which `since` and `until`
        are about. A page may be short although there is a `next`, which is the `cursor` of the page after it."""
        query = {"status": status, "endpoint": endpoint, "task_id": task_id, "since": since, "until": until}
        return await self._http.get(TaskCallPage, "/v1/task-executions", {**query, "cursor": cursor, "limit": limit})

    async def resend(self, task_id: str, execution_id: str, *, idempotency_key: str | None = None) -> ResentView:
        """Make the call of an execution once more, however it ended. Raises Conflict if it has not ended, and NotFound."""
        path = path_of("tasks", task_id, "executions", execution_id, "resend")
        return await self._http.change(ResentView, "POST", path, key=idempotency_key)

    async def resend_many(
        self, ids: Iterable[str], *, replay_id: str | None = None, idempotency_key: str | None = None
    ) -> ResendList:
        """Make the calls of up to 500 executions once more, and say what became of each, in the same order. Under one
        `replay_id` each is sent again once, however often it is asked for."""
        said = ResendRequest(ids=tuple(ids), replay_id=replay_id)
        return await self._http.change(ResendList, "POST", "/v1/task-executions/resend", said, key=idempotency_key)

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
        """One page of the calls that were given up, newest first; those that meet all conditions (`TaskDeadFilter`)."""
        said = msgspec.to_builtins(filled(TaskDeadFilter, where, conditions))
        return await self._http.get(TaskDeadLetterPage, "/v1/task-dlq", {**said, "cursor": cursor, "limit": limit})

    async def dead_letter(self, execution_id: str) -> TaskDeadLetterView:
        """A call that was given up, also if it was dealt with since. Raises NotFound."""
        return await self._http.get(TaskDeadLetterView, path_of("task-dlq", execution_id))

    async def retry_dead(self, execution_id: str, *, idempotency_key: str | None = None) -> TaskExecutionView:
        """Make a call that was given up again, as the task is now. Raises Conflict if that was done already."""
        path = path_of("task-dlq", execution_id, "retry")
        return await self._http.change(TaskExecutionView, "POST", path, key=idempotency_key)

    async def archive_dead(self, execution_id: str, *, idempotency_key: str | None = None) -> TaskDeadLetterView:
        """Put a call that was given up away: it is listed only when archived ones are asked for."""
        path = path_of("task-dlq", execution_id, "archive")
        return await self._http.change(TaskDeadLetterView, "POST", path, key=idempotency_key)

    async def retry_dead_where(
        self, where: TaskDeadFilter | None = None, /, *, idempotency_key: str | None = None, **conditions: Any
    ) -> BulkView:
        """Retry up to 1,000 of those that meet all conditions; `more` says that some are left."""
        said = filled(TaskDeadFilter, where, conditions)
        return await self._http.change(BulkView, "POST", "/v1/task-dlq/retry", said, key=idempotency_key)

    async def archive_dead_where(
        self, where: TaskDeadFilter | None = None, /, *, idempotency_key: str | None = None, **conditions: Any
    ) -> BulkView:
        """Archive up to 1,000 of those that meet all conditions; `more` says that some are left."""
        said = filled(TaskDeadFilter, where, conditions)
        return await self._http.change(BulkView, "POST", "/v1/task-dlq/archive", said, key=idempotency_key)
