"""Dead letters of tasks, as `/v1/task-dlq` presents them."""

from noonday.intake.dead_letter_service import DeadLetterService
from noonday.intake.idempotency import Idempotency
from noonday.intake.presenters import Presenter
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.errors import NotFound
from noonday.model.filters import DeadFilterQuery
from noonday.model.ids import ExecutionId
from noonday.model.job import ms_of
from noonday.model.rows import DeadLetter, KnownCall
from noonday.model.tasks.wire import (
    HANDLER,
    POOL,
    TaskDeadFilter,
    TaskDeadLetterPage,
    TaskDeadLetterView,
    TaskExecutionView,
)
from noonday.ports.queries import QueryStore
from noonday.tasks.definitions import TaskDefinitions, endpoint_of_url
from noonday.tasks.viewing import dead_view, execution_view


class TaskDeadLetters:
    """Presents dead letters of tasks, and retries and archives single ones. A retry uses the current definition of the task.

    Commands on many dead letters are those of `DeadLetterService`, with the filter that `dead_query_of` returns.
    """

    def __init__(
        self, dead_letters: DeadLetterService, receipts: Receipts, query_store: QueryStore, presenter: Presenter
    ) -> None:
        self._dead_letters = dead_letters
        self._receipts = receipts
        self._query_store = query_store
        self._presenter = presenter

    async def list_dead(
        self, caller: Caller, where: TaskDeadFilter, *, cursor: str | None = None, limit: int = 50
    ) -> TaskDeadLetterPage:
        """List dead letters, newest first, without retried ones, and with archived ones only if requested."""
        letters = await self._query_store.list_dead(caller.tenant, dead_query_of(where), cursor, limit + 1)
        calls = [_call_of(letter) for letter in letters[:limit]]
        definitions = await self._definitions_of(caller, *calls)
        return TaskDeadLetterPage(
            dead_letters=tuple(_view(definitions, call) for call in calls),
            next=calls[-1].execution.id if len(letters) > limit else None,
        )

    async def get(self, caller: Caller, execution_id: str) -> TaskDeadLetterView:
        """Return one dead letter, resolved or not. Raises NotFound."""
        return _view(*await self._find(caller, execution_id))

    async def retry(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> TaskExecutionView:
        """Repeat the call with the current task. Raises NotFound, and Conflict if the dead letter was retried before."""
        async with self._receipts.unless_answered(caller, idem):
            await self._find(caller, execution_id)
            task_idem = idem.storing(execution_view) if idem else None
            return execution_view(await self._dead_letters.retry(caller, execution_id, task_idem))

    async def archive(self, caller: Caller, execution_id: str, idem: Idempotency | None = None) -> TaskDeadLetterView:
        """Archive a dead letter. Raises NotFound, and Conflict if it was retried."""
        async with self._receipts.unless_answered(caller, idem):
            await self._find(caller, execution_id)
            await self._dead_letters.archive(caller, execution_id)
            return await self._receipts.keep(caller, idem, await self.get(caller, execution_id))

    async def _find(self, caller: Caller, execution_id: str) -> tuple[TaskDefinitions, KnownCall]:
        call = (await self._query_store.find_calls(caller.tenant, [execution_id])).get(ExecutionId(execution_id))
        definitions = await self._definitions_of(caller, *([call] if call else []))
        if call is None or call.died_ms is None or definitions.find(call.execution) is None:
            raise NotFound(f"there is no dead letter {execution_id} of a task", id=execution_id)
        return definitions, call

    async def _definitions_of(self, caller: Caller, *calls: KnownCall) -> TaskDefinitions:
        return await TaskDefinitions.read(
            self._query_store, self._presenter, caller.tenant, (call.execution for call in calls)
        )


def dead_query_of(where: TaskDeadFilter) -> DeadFilterQuery:
    """Return the filter of dead letters that selects those of tasks only. Raises InvalidInput for a malformed endpoint."""
    return DeadFilterQuery(
        job_id=where.task_id,
        pool=POOL,
        handler=HANDLER,
        since_ms=ms_of(where.since),
        until_ms=ms_of(where.until),
        archived=where.archived,
        is_task=True,
        endpoint=endpoint_of_url(where.endpoint),
        error=where.error,
    )


def _call_of(letter: DeadLetter) -> KnownCall:
    return KnownCall(letter.execution, letter.died_ms, letter.archived, letter.retried_as, letter.resolved_ms)


def _view(definitions: TaskDefinitions, call: KnownCall) -> TaskDeadLetterView:
    return dead_view(call, definitions.name_of(call.execution), definitions.url_of(call.execution))
