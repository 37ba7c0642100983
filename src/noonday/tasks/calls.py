"""Calls of all tasks: list and resend.

The id of a resent execution is derived from the original execution and from the Idempotency-Key or the replay id, so repeating a
request finds the executions that it made before. A replay does not resend its own executions; otherwise a call that keeps failing
would be resent forever.
"""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import uuid4

from noonday.intake.edits import Resend
from noonday.intake.execution_service import ExecutionService
from noonday.intake.idempotency import Idempotency
from noonday.intake.presenters import Presenter
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.errors import Conflict, NotFound
from noonday.model.execution import FINAL, Execution, State
from noonday.model.filters import CallFilter
from noonday.model.ids import ExecutionId, JobId, discriminator, execution_id
from noonday.model.rows import KnownCall
from noonday.model.tasks.wire import STATUS_NAMES, ResendList, ResendRequest, ResendResult, ResentView, TaskCallPage
from noonday.model.view import ExecutionView
from noonday.ports.queries import QueryStore
from noonday.tasks.definitions import TaskDefinitions
from noonday.tasks.viewing import call_view, resent_view

SCAN_LIMIT = 5_000
"""Maximum number of executions scanned for one page, so that a page costs the same however few of them match."""
JOBS_AT_ONCE = 8
"""Maximum number of jobs whose executions are resent concurrently."""


class TaskCalls:
    """Lists and resends calls of all tasks of a tenant."""

    def __init__(
        self, executions: ExecutionService, receipts: Receipts, query_store: QueryStore, presenter: Presenter
    ) -> None:
        self._executions = executions
        self._receipts = receipts
        self._query_store = query_store
        self._presenter = presenter

    async def list_calls(
        self, caller: Caller, where: CallFilter, *, cursor: str | None = None, limit: int = 50
    ) -> TaskCallPage:
        """List calls, newest scheduled time first. A page may be short although there is a next one."""
        page = await self._query_store.list_calls(caller.tenant, where, cursor, limit, SCAN_LIMIT)
        definitions = await self._definitions_of(caller, page.calls)
        views = (
            call_view(
                call,
                self._presenter.execution(call.execution, definitions.name_of(call.execution)),
                definitions.url_of(call.execution),
            )
            for call in page.calls
        )
        return TaskCallPage(executions=tuple(views), next=page.next)

    async def resend(self, caller: Caller, task_id: str, execution: str, idem: Idempotency | None = None) -> ResentView:
        """Resend the call of a finished execution: with its original payload if that is stored, else with the task's current one.

        Resending resolves a dead letter. Raises NotFound, and Conflict if the execution has not ended.
        """
        key = idem.key if idem else str(uuid4())
        async with self._receipts.unless_answered(caller, idem):
            call = (await self._query_store.find_calls(caller.tenant, [execution])).get(ExecutionId(execution))
            if call is None or call.execution.job_id != task_id:
                raise NotFound(f"there is no execution {execution} of task {task_id}", execution_id=execution)
            resend = self._plan(call, await self._definitions_of(caller, [call]), key)
            if isinstance(resend, str):
                raise Conflict(resend, status=STATUS_NAMES.get(call.execution.state.name))
            return await self._resend(caller, resend, idem)

    async def resend_many(self, caller: Caller, request: ResendRequest, idem: Idempotency | None = None) -> ResendList:
        """Resend the calls of executions of any tasks. A result without a new execution has a problem text."""
        async with self._receipts.once(caller, idem):
            key = f"replay:{request.replay_id}" if request.replay_id else idem.key if idem else str(uuid4())
            results = await self._resend_each(caller, list(dict.fromkeys(request.ids)), key)
            return await self._receipts.keep(caller, idem, ResendList(results=results))

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _resend(self, caller: Caller, resend: Resend, idem: Idempotency | None) -> ResentView:
        was = resend.was

        def view(created: Mapping[ExecutionId, ExecutionView]) -> ResentView:
            return resent_view(created[resend.new], with_present_payload=resend.revision != was.revision)

        if existing := (await self._query_store.find_calls(caller.tenant, [resend.new])).get(resend.new):
            async with self._receipts.once(caller, idem):
                # The stored response of the key has expired, but its execution exists.
                return view({resend.new: self._presenter.execution(existing.execution)})
        task_idem = idem.storing(view) if idem else None
        return view(await self._executions.run_again(caller, was.job_id, [resend], task_idem))

    async def _resend_each(self, caller: Caller, ids: Sequence[str], key: str) -> tuple[ResendResult, ...]:
        found = await self._query_store.find_calls(caller.tenant, ids)
        definitions = await self._definitions_of(caller, list(found.values()))
        results: dict[str, ResendResult] = {
            id_: ResendResult(id=id_, problem="no task has an execution with this id") for id_ in ids
        }
        resends: dict[ExecutionId, Resend] = {}
        for call in found.values():
            resend = self._plan(call, definitions, key)
            id_ = call.execution.id
            if isinstance(resend, str):
                results[id_] = ResendResult(id=id_, problem=resend)
            elif _is_created_by(key, call.execution):
                results[id_] = ResendResult(id=id_, resent_as=id_, there_already=True)
            else:
                resends[id_] = resend
        existing = await self._query_store.find_calls(caller.tenant, [resend.new for resend in resends.values()])
        new = [resend for resend in resends.values() if resend.new not in existing]
        problems = await self._run_again(caller, new)
        for id_, resend in resends.items():
            results[id_] = _result(resend, exists=resend.new in existing, problem=problems.get(resend.was.job_id))
        return tuple(results.values())

    async def _run_again(self, caller: Caller, resends: Sequence[Resend]) -> dict[JobId, str]:
        """Create the executions, some jobs at a time. Returns the problem of each job that was refused."""
        by_job: dict[JobId, list[Resend]] = {}
        for resend in resends:
            by_job.setdefault(resend.was.job_id, []).append(resend)
        problems: dict[JobId, str] = {}
        limit = asyncio.Semaphore(JOBS_AT_ONCE)

        async def run(job: JobId) -> None:
            async with limit:
                try:
                    await self._executions.run_again(caller, job, by_job[job])
                except (NotFound, Conflict) as refused:
                    problems[job] = refused.detail

        async with asyncio.TaskGroup() as group:
            for job in by_job:
                group.create_task(run(job))
        return problems

    def _plan(self, call: KnownCall, definitions: TaskDefinitions, key: str) -> Resend | str:
        """Return the new execution of a call, or the reason why it cannot be resent."""
        was = call.execution
        definition = definitions.find_live(was)
        if definition is None:
            return "the task of this execution was deleted"
        if was.state not in FINAL:
            return f"the execution is {STATUS_NAMES.get(was.state.name)}: it has not ended"
        is_open_letter = was.state is State.DEAD and call.died_ms is not None and call.retried_as is None
        return Resend(was, _resent_id(was, was.id, key), definition.revision, resolves=is_open_letter)

    async def _definitions_of(self, caller: Caller, calls: Sequence[KnownCall]) -> TaskDefinitions:
        return await TaskDefinitions.read(
            self._query_store, self._presenter, caller.tenant, (call.execution for call in calls)
        )


def _resent_id(execution: Execution, was: str, key: str) -> ExecutionId:
    """Return the id under which `was`, an execution of the same occurrence, is resent."""
    return execution_id(execution.job_id, execution.nominal_ms, discriminator("resend", f"{key}:{was}"))


def _is_created_by(key: str, execution: Execution) -> bool:
    """Return whether a resend under this key created the execution."""
    return execution.retry_of is not None and _resent_id(execution, execution.retry_of, key) == execution.id


def _result(resend: Resend, *, exists: bool, problem: str | None) -> ResendResult:
    if problem is not None and not exists:
        return ResendResult(id=resend.was.id, problem=problem)
    is_changed = resend.revision != resend.was.revision
    return ResendResult(
        id=resend.was.id, resent_as=resend.new, there_already=exists, with_present_payload=is_changed and not exists
    )
