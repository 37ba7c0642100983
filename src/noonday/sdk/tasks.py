"""What can be asked of a server about tasks: webhooks that are called on time."""

from typing import Any

from noonday.sdk.fields import filled
from noonday.sdk.transport import Transport, path_of
from noonday.tasks.wire import (
    ExecutionStatus,
    TaskExchangesView,
    TaskExecutionList,
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
        """Go on, also after the receiver or a disabled endpoint has stopped it. Raises Conflict if the task is over."""
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
