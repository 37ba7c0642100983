"""Task service: commands and queries of tasks, on top of the services of intake."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import UNSET

from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.intake.services import IntakeServices
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, Flaw, InvalidInput, NotFound, StoreUnavailable, VersionMismatch
from noonday.model.execution import Execution, State
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Job, JobSpec, JobState
from noonday.model.rows import WebhookRow
from noonday.model.tasks.wire import (
    HANDLER,
    POOL,
    STATE_OF,
    ExecutionStatus,
    Pagination,
    RequestedStatus,
    TaskExchangesView,
    TaskExecutionList,
    TaskList,
    TaskPatch,
    TaskSpec,
    TaskStatus,
    TaskView,
)
from noonday.model.view import JobView, PoolSettings
from noonday.ports.clock import Clock
from noonday.ports.executions import Executions
from noonday.ports.queries import QueryStore
from noonday.tasks.calls import TaskCalls
from noonday.tasks.dead_letters import TaskDeadLetters
from noonday.tasks.endpoints import EndpointService
from noonday.tasks.secrets import SecretService
from noonday.tasks.translating import as_task_flaws, patched, task_of, to_job_spec
from noonday.tasks.viewing import exchanges_view, execution_view, row_of, status_after, status_of, task_view
from noonday.webhooks.bounds import CallBounds

WITHIN_REACH = 100_000
"""Maximum number of tasks that can be paged through and are counted. Filters reach the others."""
LATEST = 10
"""Number of executions that a task shows."""
TRIES = 5
"""Maximum number of attempts to apply a patch while other requests change the task."""


class TaskService:
    """Commands and queries of tasks. A task is a job, so every change goes through the job service."""

    def __init__(
        self,
        intake: IntakeServices,
        secrets: SecretService,
        query_store: QueryStore,
        executions: Executions,
        clock: Clock,
        endpoints: EndpointService,
        bounds: CallBounds,
    ) -> None:
        self._jobs, self._pools, self._receipts = intake.jobs, intake.pools, intake.receipts
        self._execution_service = intake.executions
        self._secrets = secrets
        self._query_store = query_store
        self._attempt_records = executions.attempt_records
        self._clock = clock
        self._presenter = intake.presenter
        self.endpoints = endpoints
        self._bounds = bounds
        self.calls = TaskCalls(intake.executions, intake.receipts, query_store, intake.presenter)
        self.dead_letters = TaskDeadLetters(intake.dead_letters, intake.receipts, query_store, intake.presenter)

    # -- commands ------------------------------------------------------------------------------------------------------

    async def create(
        self, caller: Caller, spec: TaskSpec, idem: Idempotency | None = None, *, traceparent: str | None = None
    ) -> TaskView:
        """Create a task. Raises InvalidInput with every flaw, in the field names of tasks."""
        async with self._answered_once(caller, idem):
            job = to_job_spec(spec, self._clock.now_ms(), self._bounds)
            await self.endpoints.refuse_disabled(caller.tenant, job.target.endpoint)
            await self._secrets.make_first(caller.tenant)
            try:
                created = await self._create(caller, job, _storing_task(idem, _new_view), traceparent)
            except InvalidInput as bad:
                raise as_task_flaws(bad, spec) from bad
        return _new_view(created)

    async def patch(self, caller: Caller, task_id: str, patch: TaskPatch, idem: Idempotency | None = None) -> TaskView:
        """Pause or resume a task, or change its definition. Raises NotFound, Conflict and InvalidInput."""
        async with self._answered_once(caller, idem, task_id):
            _check_patch(patch)
            if patch.status is not UNSET:
                return await self._set_status(caller, task_id, patch.status, idem)
            for _ in range(TRIES):
                with suppress(VersionMismatch):  # another request changed the task: apply the patch to the new version
                    return await self._change(caller, task_id, patch, idem)
        raise StoreUnavailable(f"gave up on task {task_id} after {TRIES} conflicting changes; retry")

    async def delete(self, caller: Caller, task_id: str, idem: Idempotency | None = None) -> None:
        """Delete a task. A call that is running finishes and is not retried. Raises NotFound."""
        async with self._answered_once(caller, idem, task_id):
            await self._find(caller, task_id)
            await self._jobs.delete(caller, task_id, idem)

    # -- queries -------------------------------------------------------------------------------------------------------

    async def get(self, caller: Caller, task_id: str) -> TaskView:
        """Return a task with its latest executions. Raises NotFound, also if the task was deleted."""
        task, executions = await self._find(caller, task_id)
        shown = [self._presenter.execution(execution, task.row.job.spec.name) for execution in executions]
        return task_view(self._presenter.job(task.row), status_of(task), shown)

    async def list_tasks(
        self, caller: Caller, *, status: TaskStatus | None = None, page: int = 1, limit: int = 20
    ) -> TaskList:
        """List tasks, newest first. Raises InvalidInput for a page beyond `WITHIN_REACH` tasks."""
        _check_page(page, limit)
        rows = await self._query_store.list_tasks(caller.tenant, status, (page - 1) * limit, limit)
        total = await self._query_store.count_tasks(caller.tenant, status, WITHIN_REACH)
        return TaskList(tasks=tuple(map(self._listed, rows)), pagination=_pagination(page, limit, total))

    async def list_executions(
        self, caller: Caller, task_id: str, *, status: ExecutionStatus | None = None, limit: int = LATEST
    ) -> TaskExecutionList:
        """List the latest executions of a task, newest first."""
        await self._find(caller, task_id)
        state = None if status is None else STATE_OF[status].name
        found = await self._execution_service.list_executions(caller, task_id, state=state, limit=limit)
        return TaskExecutionList(executions=tuple(map(execution_view, found.executions)))

    async def get_execution(self, caller: Caller, task_id: str, execution_id: str) -> TaskExchangesView:
        """Return an execution of a task, with the request and response of each attempt. Raises NotFound."""
        await self._find(caller, task_id)
        found = await self._execution_service.get(caller, execution_id)
        if found.job_id != task_id:
            raise NotFound(f"there is no execution {execution_id} of task {task_id}", execution_id=execution_id)
        records = await self._attempt_records(ExecutionId(execution_id))
        decrypted = [(each, self._presenter.open(each.details, caller.tenant, JobId(task_id))) for each in records]
        return exchanges_view(found, decrypted)

    # -- steps ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _answered_once(self, caller: Caller, idem: Idempotency | None, task_id: str = "") -> AsyncIterator[None]:
        """Replay the stored response of an idempotency key before refusing a request.

        A request may be valid the first time and invalid when it is repeated: its task is deleted, or its time has passed.
        """
        try:
            yield
        except (InvalidInput, NotFound, Conflict):
            try:
                async with self._receipts.once(caller, idem):
                    raise
            except AlreadyAnswered:
                # The key has a response, so this changes nothing. The job service returns the response once workers have
                # seen the change.
                await self._jobs.pause(caller, task_id, idem)
                raise

    async def _create(self, caller: Caller, job: JobSpec, idem: Idempotency | None, traceparent: str | None) -> JobView:
        try:
            return await self._jobs.create(caller, job, idem, traceparent=traceparent, maker_of=POOL)
        except InvalidInput as bad:
            if not any(flaw.pointer == "/target/pool" for flaw in bad.flaws):
                raise
        # Users of tasks start no workers, so the pool may be missing. Calls wait in it until a worker starts.
        await self._pools.put(caller, POOL, PoolSettings())
        return await self._jobs.create(caller, job, idem, traceparent=traceparent, maker_of=POOL)

    async def _set_status(
        self, caller: Caller, task_id: str, status: RequestedStatus, idem: Idempotency | None
    ) -> TaskView:
        before, _ = await self._find(caller, task_id)
        _refuse_if_over(before)
        if status is RequestedStatus.SCHEDULED:
            await self.endpoints.refuse_disabled(caller.tenant, before.row.job.spec.target.endpoint)
        view = _after(before)
        edit = self._jobs.pause if status is RequestedStatus.PAUSED else self._jobs.resume
        return view(await edit(caller, task_id, _storing_task(idem, view)))

    async def _change(self, caller: Caller, task_id: str, patch: TaskPatch, idem: Idempotency | None) -> TaskView:
        before, _ = await self._find(caller, task_id)
        job = before.row.job
        present = msgspec.structs.replace(job.spec, payload=self._presenter.open(job.payload, job.tenant, job.id))
        new = patched(present, patch, self._clock.now_ms(), self._bounds)
        if new.target.endpoint != present.target.endpoint:
            await self.endpoints.refuse_disabled(caller.tenant, new.target.endpoint)
        view, task_idem = _after(before), _storing_task(idem, _after(before))
        try:
            changed = await self._jobs.replace(
                caller, task_id, new, if_version=job.revision, idem=task_idem, maker_of=POOL
            )
            return view(changed)
        except InvalidInput as bad:
            raise as_task_flaws(bad, task_of(new)) from bad

    async def _find(self, caller: Caller, task_id: str) -> tuple[WebhookRow, list[Execution]]:
        """Find a task and its latest executions. Raises NotFound."""
        row = await self._query_store.find_job(caller.tenant, JobId(task_id))
        if row is None or not _is_task(row.job) or row.job.state is JobState.CANCELLED:
            raise NotFound(f"there is no task {task_id}", task_id=task_id)
        latest = await self._executions(caller, row.job.id, None, LATEST)
        task = row_of(row, latest)
        if row.open and not task.running:
            older = await self._executions(caller, row.job.id, State.RUNNING.name, 1)
            task = msgspec.structs.replace(task, running=bool(older))
        return task, latest

    async def _executions(self, caller: Caller, job: JobId, state: str | None, limit: int) -> list[Execution]:
        return await self._query_store.list_executions(caller.tenant, job, state=state, after=None, limit=limit)

    def _listed(self, task: WebhookRow) -> TaskView:
        latest = () if task.latest is None else (task.latest,)
        return task_view(self._presenter.job(task.row, executions=latest), status_of(task))


def _is_task(job: Job) -> bool:
    target = job.spec.target
    return target.pool == POOL and target.handler == HANDLER and target.endpoint is not None


def _storing_task(idem: Idempotency | None, view: Callable[[JobView], TaskView]) -> Idempotency | None:
    """Return the idempotency key so that the task, not its job, is stored as the response."""
    return None if idem is None else idem.storing(view)


def _new_view(job: JobView) -> TaskView:
    return task_view(job, TaskStatus.SCHEDULED)


def _after(before: WebhookRow) -> Callable[[JobView], TaskView]:
    return lambda job: task_view(job, status_after(job, before))


def _check_patch(patch: TaskPatch) -> None:
    present = [name for name in patch.__struct_fields__ if getattr(patch, name) is not UNSET]
    if not present:
        raise InvalidInput.of("", "the patch is empty: set at least one field", allowed=list(patch.__struct_fields__))
    if patch.status is not UNSET and len(present) > 1:
        others = ", ".join(name for name in present if name != "status")
        detail = f"status cannot be combined with other fields: send {others} in another request"
        raise InvalidInput(detail, [Flaw("/status", detail, patch.status.value)])


def _refuse_if_over(before: WebhookRow) -> None:
    """Raise Conflict if a task has no future calls. A halted task is FAILED but can be resumed."""
    status = status_of(before)
    is_over = status in (TaskStatus.COMPLETED, TaskStatus.FAILED) and before.row.job.halted is None
    if is_over:
        raise Conflict(f"the task is {status} and has no future calls: give it a new schedule first", state=status)


def _check_page(page: int, limit: int) -> None:
    if page * limit > WITHIN_REACH:
        last = WITHIN_REACH // limit
        detail = (
            f"only the newest {WITHIN_REACH} tasks can be paged through: with limit {limit} the last page is {last}"
        )
        raise InvalidInput.of("/page", detail, page, allowed=f"1 to {last}")


def _pagination(page: int, limit: int, total: int) -> Pagination:
    least = True if total >= WITHIN_REACH else UNSET
    return Pagination(page=page, limit=limit, total=total, pages=-(-total // limit), total_is_least=least)
