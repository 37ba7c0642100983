"""The items of bulk operations: how each kind finds them, and what it does to one of them."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from noonday.intake.dead_letter_service import DeadLetterService
from noonday.intake.execution_service import ExecutionService
from noonday.intake.idempotency import AlreadyAnswered, Idempotency
from noonday.intake.job_service import JobService
from noonday.model.caller import Caller
from noonday.model.errors import Busy, Conflict, IdempotencyInProgress, NoondayError, NotFound, Unavailable
from noonday.model.execution import FINAL
from noonday.model.found_executions import ExecutionFilter
from noonday.model.ids import ExecutionId
from noonday.model.job import ms_of
from noonday.model.operation import LONGEST_ERROR, BulkOperation, OperationFilter, OperationKind, Results
from noonday.model.selection import DeadSelector, JobSelector
from noonday.ports.clock import Clock
from noonday.ports.execution_search import ExecutionSearch
from noonday.ports.selection import Selection

EXAMINED = 5_000
"""Maximum number of items examined for one page, so that a page costs the same however few of them match."""
LATER = (Unavailable, Busy, IdempotencyInProgress)
"""Errors after which the batch is repeated: they say nothing about the item."""
FINGERPRINT = "operation"
OPEN_STATES = ("PENDING", "RUNNING")
Kind = OperationKind
Find = Callable[[BulkOperation, OperationFilter, int], Awaitable["ItemPage"]]
Act = Callable[[Caller, str, Idempotency], Awaitable[object]]


class OperationItem(NamedTuple):
    id: str
    text: str
    """Its name or its error, for people."""


class ItemPage(NamedTuple):
    items: list[OperationItem]
    next: str | None
    """Where the next page begins. It may be set although this page is short, or even empty."""


class OperationItems:
    """Finds and changes the items of operations, each through the service that changes one of them for a user."""

    def __init__(
        self,
        *,
        jobs: JobService,
        executions: ExecutionService,
        dead_letters: DeadLetterService,
        selection: Selection,
        execution_search: ExecutionSearch,
        clock: Clock,
    ) -> None:
        self._selection = selection
        self._execution_search = execution_search
        self._clock = clock
        self._acts: dict[OperationKind, Act] = {
            Kind.PAUSE_JOBS: jobs.pause,
            Kind.RESUME_JOBS: jobs.resume,
            Kind.CANCEL_JOBS: jobs.delete,
            Kind.CANCEL_EXECUTIONS: executions.cancel,
            Kind.RETRY_DEAD_LETTERS: dead_letters.retry,
            Kind.ARCHIVE_DEAD_LETTERS: dead_letters.archive,
        }
        self._finders: dict[OperationKind, Find] = {
            Kind.PAUSE_JOBS: partial(self._jobs, state="ACTIVE"),
            Kind.RESUME_JOBS: partial(self._jobs, state="PAUSED"),
            Kind.CANCEL_JOBS: self._jobs,
            Kind.CANCEL_EXECUTIONS: self._open_executions,
            Kind.RETRY_DEAD_LETTERS: self._dead_letters,
            Kind.ARCHIVE_DEAD_LETTERS: self._dead_letters,
        }

    async def find(self, operation: BulkOperation, limit: int) -> ItemPage:
        """Return the items that follow the operation's position."""
        return await self._finders[operation.kind](operation, operation.filter, limit)

    async def ended_runs(self, operation: BulkOperation) -> dict[ExecutionId, bool]:
        """Return which watched runs are judged, and whether each failed: its first attempt did, or it was deleted."""
        found = await self._selection.run_ends(operation.tenant, operation.watched)
        finals = {int(state): state.name for state in FINAL}
        ended = {
            ExecutionId(run.id): finals.get(run.state) not in ("SUCCEEDED", "CANCELLED")
            for run in found
            if run.state in finals or run.attempt > 1
        }
        known = {run.id for run in found}
        return ended | {run: False for run in operation.watched if run not in known}

    async def change(self, operation: BulkOperation) -> Results:
        """Change the items of the operation's batch. An item that was changed before, by a process that died, counts as changed.

        Raises the error if the store or the signals are unavailable. The batch is repeated then.
        """
        caller = Caller(operation.tenant, operation.by, frozenset(), operation=operation.id)
        done, skipped, errors, started = 0, 0, list[str](), list[ExecutionId]()
        for item in operation.batch:
            try:
                started.append(ExecutionId(await self._change(caller, operation, item)))
                done += 1
            except (Conflict, NotFound):
                skipped += 1
            except LATER:
                raise
            except NoondayError as error:
                errors.append(f"{item}: {error.detail}"[:LONGEST_ERROR])
        return Results(done, skipped, len(errors), tuple(started), tuple(errors))

    async def _change(self, caller: Caller, operation: BulkOperation, item: str) -> str:
        """Change an item once. Returns the id of the execution that a retry created, else an empty text.

        The receipt is stored with the change, in one transaction, so a repeated batch changes nothing twice.
        """
        key = Idempotency(f"operation:{operation.id}:{item}", FINGERPRINT, lambda view: 200, _execution_of)
        try:
            return _execution_of(await self._acts[operation.kind](caller, item, key)).decode()
        except AlreadyAnswered as answered:
            return answered.body.decode()

    async def _jobs(
        self, operation: BulkOperation, where: OperationFilter, limit: int, state: str | None = None
    ) -> ItemPage:
        selector = JobSelector(
            type=where.type,
            pool=where.pool,
            handler=where.handler,
            name=where.name,
            tag=where.tag,
            unique_key=where.unique_key,
            state=state or where.state,
        )
        page = await self._selection.jobs(
            operation.tenant, selector, operation.position, limit, until_ms=operation.until_ms, most=EXAMINED
        )
        return ItemPage([OperationItem(job.id, job.name or "") for job in page.jobs], page.next)

    async def _dead_letters(self, operation: BulkOperation, where: OperationFilter, limit: int) -> ItemPage:
        until_ms = ms_of(where.until)
        selector = DeadSelector(
            job_id=where.job_id,
            pool=where.pool,
            handler=where.handler,
            since_ms=ms_of(where.since),
            until_ms=operation.until_ms if until_ms is None else min(until_ms, operation.until_ms),
            error=where.error,
        )
        size = limit if where.fingerprint is None else EXAMINED
        page = await self._selection.dead_letters(operation.tenant, selector, operation.position, size, most=EXAMINED)
        found = [each for each in page.letters if where.fingerprint in (None, each.fingerprint)]
        items = [OperationItem(each.id, f"{each.error_type}: {each.message}"[:LONGEST_ERROR]) for each in found[:limit]]
        return ItemPage(items, items[-1].id if len(found) > limit else page.next)

    async def _open_executions(self, operation: BulkOperation, where: OperationFilter, limit: int) -> ItemPage:
        """Find pending executions, then running ones. The position names the state and the place in its list."""
        states = OPEN_STATES if where.state is None else (where.state,)
        state, _, after = (operation.position or states[0]).partition(":")
        until_ms = ms_of(where.until)
        search = ExecutionFilter(
            job_id=where.job_id,
            state=state,
            pool=where.pool,
            handler=where.handler,
            tag=where.tag,
            worker=where.worker,
            since_ms=ms_of(where.since),
            until_ms=operation.until_ms if until_ms is None else min(until_ms, operation.until_ms),
            late_over_ms=None if where.late_over is None else round(where.late_over * 1000),
            took_over_ms=None if where.took_over is None else round(where.took_over * 1000),
        )
        page = await self._execution_search.search(
            operation.tenant, search, after or None, limit, most=EXAMINED, now_ms=self._clock.now_ms()
        )
        items = [OperationItem(each.execution.id, each.job_name or each.execution.handler) for each in page.found]
        if page.next is not None:
            return ItemPage(items, f"{state}:{page.next}")
        following = states[states.index(state) + 1 :]
        return ItemPage(items, following[0] if following else None)


def _execution_of(view: object) -> bytes:
    return getattr(view, "execution_id", "").encode()
