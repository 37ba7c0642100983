"""Execution service: commands and queries of executions."""

from collections.abc import Sequence

from noonday.intake import edits
from noonday.intake.audit import audit_entry
from noonday.intake.blockers import UNCOUNTED_MS, Blocker, BlockerFinder, DueEntry, still_awaited, utc_text
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.lookup import get_execution_row, get_job_row
from noonday.intake.paging import bytes_of, within_page
from noonday.intake.presenters import Presenter
from noonday.model.caller import Caller
from noonday.model.change import Change, ChangeResult
from noonday.model.errors import InvalidInput
from noonday.model.execution import Execution, State
from noonday.model.ids import ExecutionId, JobId
from noonday.model.job import Concurrency
from noonday.model.snapshot import Snapshot
from noonday.model.view import ExecutionLogsView, ExecutionPage, ExecutionView
from noonday.ports.clock import Clock
from noonday.ports.queries import QueryStore
from noonday.ports.workload import Workload

_STATES = {"PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "EXPIRED", "DEAD"}


class ExecutionService:
    """Commands and queries of executions."""

    def __init__(
        self,
        *,
        editor: JobEditor,
        query_store: QueryStore,
        workload: Workload,
        presenter: Presenter,
        blockers: BlockerFinder,
        clock: Clock,
    ) -> None:
        self._editor = editor
        self._query_store = query_store
        self._workload = workload
        self._presenter = presenter
        self._blockers = blockers
        self._clock = clock

    async def get(self, caller: Caller, execution_id: str, *, summary: bool = False) -> ExecutionView:
        """Return an execution, and what it waits for. Raises NotFound."""
        row = await get_execution_row(self._query_store, caller, execution_id)
        job = await self._query_store.find_job(caller.tenant, row.job_id)
        spec = job.job.spec if job else None
        waiting_for = await self._waiting_for(row, spec.concurrency if spec else None)
        return self._presenter.execution(row, spec.name if spec else None, waiting_for, summary=summary)

    async def get_logs(self, caller: Caller, execution_id: str) -> ExecutionLogsView:
        """Return what the handler of an execution logged. Raises NotFound."""
        row = await get_execution_row(self._query_store, caller, execution_id)
        return self._presenter.logs(row, await self._query_store.attempt_logs(caller.tenant, row.id))

    async def list_executions(
        self,
        caller: Caller,
        job_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        summary: bool = False,
    ) -> ExecutionPage:
        """List executions of a job. A page ends early if results and progress are large. With `summary` nothing is decrypted."""
        if state is not None and state not in _STATES:
            raise InvalidInput.of("/state", f"unknown state {state!r}", state, allowed=sorted(_STATES))
        job = await get_job_row(self._query_store, caller, job_id)
        rows = await self._query_store.list_executions(
            caller.tenant, job.job.id, state=state, after=cursor, limit=limit + 1
        )
        shown = rows[:limit] if summary else within_page(rows[:limit], bytes_of)
        views = tuple(self._presenter.execution(row, job.job.spec.name, summary=summary) for row in shown)
        return ExecutionPage(executions=views, next=views[-1].execution_id if len(rows) > len(shown) else None)

    async def cancel(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> ExecutionView:
        """Cancel an execution: it does not start, or is asked to stop. Raises NotFound, and Conflict if it has ended."""
        row = await get_execution_row(self._query_store, caller, execution_id)
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "execution.cancel", execution_id, now_ms)
        reason = f"cancelled by {caller.subject}"

        def decide(before: Snapshot) -> Change:
            return edits.cancel_execution(before, row.id, reason, audit)

        def view(applied: ChangeResult) -> ExecutionView:
            return self._presenter.execution_after(applied, row.id)

        return await self._editor.edit(caller, row.job_id, decide, view, now_ms, idem, show=[row.id])

    async def run_again(
        self, caller: Caller, job_id: JobId, resends: Sequence[edits.Resend], idem: Idempotency | None = None
    ) -> dict[ExecutionId, ExecutionView]:
        """Repeat ended executions of a job. Returns the new executions by id.

        An execution that exists already is not changed, and not returned if it has ended. Raises NotFound, and Conflict if the
        job was cancelled.
        """
        now_ms = self._clock.now_ms()
        single = resends[0].was.id if len(resends) == 1 else None
        count = {} if single else {"executions": len(resends)}
        audit = audit_entry(caller, "execution.resend", single or job_id, now_ms, count)
        new = {each.new for each in resends}

        def view(applied: ChangeResult) -> dict[ExecutionId, ExecutionView]:
            name = applied.after.job.spec.name
            return {row.id: self._presenter.execution(row, name) for row in applied.after.executions if row.id in new}

        def decide(before: Snapshot) -> Change:
            return edits.run_again(before, resends, now_ms, audit)

        return await self._editor.edit(caller, job_id, decide, view, now_ms, idem, show=sorted(new))

    async def _waiting_for(self, row: Execution, concurrency: Concurrency | None) -> str | None:
        if row.state is not State.PENDING:
            return None
        if row.buffered:
            return "an earlier open execution of the job (overlap)"
        if row.fired_ms is None:
            return await self._waiting_on_timeline(row, concurrency)
        pools = await self._workload.list_pools(UNCOUNTED_MS, row.pool)
        if not pools or not pools[0].workers:
            return f"pool {row.pool!r} has no workers"
        return f"a free slot in pool {row.pool!r}: {pools[0].running} of {pools[0].capacity} running"

    async def _waiting_on_timeline(self, row: Execution, concurrency: Concurrency | None) -> str:
        due_ms = row.waits_until_ms
        if due_ms is not None and due_ms <= self._clock.now_ms():
            awaited = still_awaited(concurrency, row.slots)
            entry = DueEntry(row.tenant, row.pool, row.job_id, (due_ms, row.id), awaited)
            return _blocker_text(await self._blockers.find(entry))
        pause = await self._blockers.find_pause(row.tenant, row.pool)
        if pause:
            return pause
        if due_ms is None:
            return "its job is paused"
        if "HANDED_BACK" in row.transitions.rpartition("[0,")[2]:
            return f"a worker with handler {row.handler!r} in pool {row.pool!r}: no worker has this handler"
        when = utc_text(due_ms)
        return f"its next attempt at {when}" if row.attempt > 1 else f"its due time: {when}"


def _blocker_text(blocker: Blocker) -> str:
    least = "at least " if blocker.position_is_least else ""
    before = f"; {least}{blocker.position} before it" if blocker.position else ""
    return (
        blocker.reason
        + before
        + (f"; expected to start at {utc_text(blocker.expected_ms)}" if blocker.expected_ms else "")
    )
