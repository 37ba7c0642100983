"""Dead letter service: lists, retries and archives dead letters, of all jobs or of tasks only."""

from collections.abc import Awaitable, Callable

from noonday.intake import edits
from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.job_editor import JobEditor
from noonday.intake.lookup import get_execution_row
from noonday.intake.paging import bytes_of, within_page
from noonday.intake.presenters import Presenter
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.change import Change, ChangeResult
from noonday.model.errors import Conflict
from noonday.model.execution import Execution, State
from noonday.model.filters import DeadFilterQuery
from noonday.model.snapshot import Snapshot
from noonday.model.view import BulkView, DeadLetterPage, DeadLetterView, ExecutionView
from noonday.ports.clock import Clock
from noonday.ports.queries import QueryStore

BULK = 1000
"""Maximum number of dead letters that one request retries or archives."""


class DeadLetterService:
    """Commands and queries of dead letters."""

    def __init__(
        self, *, editor: JobEditor, receipts: Receipts, query_store: QueryStore, presenter: Presenter, clock: Clock
    ) -> None:
        self._editor = editor
        self._receipts = receipts
        self._query_store = query_store
        self._presenter = presenter
        self._clock = clock

    async def list_dead_letters(
        self, caller: Caller, where: DeadFilterQuery, *, cursor: str | None = None, limit: int = 50
    ) -> DeadLetterPage:
        """List dead letters that were not retried, newest first. A page ends early if results and progress are large."""
        letters = await self._query_store.list_dead(caller.tenant, where, cursor, limit + 1)
        views = tuple(
            self._presenter.dead_letter(
                letter.execution, letter.died_ms, letter.archived, letter.retried_as, letter.job_name
            )
            for letter in within_page(letters[:limit], lambda letter: bytes_of(letter.execution))
        )
        return DeadLetterPage(
            dead_letters=views, next=views[-1].execution.execution_id if len(letters) > len(views) else None
        )

    async def retry(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> ExecutionView:
        """Retry a dead letter as a new execution. Raises NotFound, and Conflict if it is not an open dead letter."""
        async with self._receipts.unless_answered(caller, idem):
            dead, _ = await self._open_letter(caller, execution_id)
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "dead.retry", execution_id, now_ms)
        new = edits.id_of_retry(dead)

        def decide(before: Snapshot) -> Change:
            return edits.retry_dead(before, dead, now_ms, audit)

        def view(applied: ChangeResult) -> ExecutionView:
            return self._presenter.execution_after(applied, new)

        return await self._editor.edit(caller, dead.job_id, decide, view, now_ms, idem, show=[new])

    async def archive(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> DeadLetterView:
        """Archive a dead letter. Raises NotFound, and Conflict if it is not an open dead letter."""
        async with self._receipts.unless_answered(caller, idem):
            dead, died_ms = await self._open_letter(caller, execution_id)
        now_ms = self._clock.now_ms()
        audit = audit_entry(caller, "dead.archive", execution_id, now_ms)

        def decide(before: Snapshot) -> Change:
            return edits.archive_dead(dead.id, audit)

        def view(applied: ChangeResult) -> DeadLetterView:
            return self._presenter.dead_letter(dead, died_ms, True, None, applied.after.job.spec.name)

        return await self._editor.edit(caller, dead.job_id, decide, view, now_ms, idem)

    async def retry_where(self, caller: Caller, where: DeadFilterQuery, idem: Idempotency | None = None) -> BulkView:
        """Retry the dead letters that match a filter, at most `BULK` at a time."""
        return await self._each(caller, where, idem, self.retry)

    async def archive_where(self, caller: Caller, where: DeadFilterQuery, idem: Idempotency | None = None) -> BulkView:
        """Archive the dead letters that match a filter, at most `BULK` at a time."""
        return await self._each(caller, where, idem, self.archive)

    async def _each(
        self,
        caller: Caller,
        where: DeadFilterQuery,
        idem: Idempotency | None,
        act: Callable[[Caller, str], Awaitable[object]],
    ) -> BulkView:
        async with self._receipts.once(caller, idem):
            changed, after = 0, None
            while True:
                letters = await self._query_store.list_dead(caller.tenant, where, after, BULK + 1)
                for letter in letters[:BULK]:
                    try:
                        await act(caller, letter.execution.id)
                        changed += 1
                    except Conflict:
                        continue  # the job was cancelled, or another request was faster
                if changed or len(letters) <= BULK:
                    view = BulkView(changed=changed, more=len(letters) > BULK)
                    return await self._receipts.keep(caller, idem, view)
                after = letters[BULK - 1].execution.id

    async def _open_letter(self, caller: Caller, execution_id: str) -> tuple[Execution, int]:
        """Return the execution of a dead letter that was not retried, and when it died."""
        row = await get_execution_row(self._query_store, caller, execution_id)
        if row.state is not State.DEAD:
            raise Conflict(f"the execution is {row.state.name}, not DEAD: it is no dead letter", state=row.state.name)
        found = await self._query_store.find_dead(caller.tenant, row.id)
        if found is None or found[2] is not None:
            raise Conflict("the dead letter was already retried", retriedAs=found[2] if found else None)
        return row, found[0]
