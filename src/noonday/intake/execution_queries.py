"""Queries of the executions of all jobs."""

from noonday.intake.presenters import Presenter
from noonday.model.caller import Caller
from noonday.model.found_executions import ExecutionFilter
from noonday.model.view import ExecutionPage
from noonday.ports.clock import Clock
from noonday.ports.execution_search import ExecutionSearch

SCAN_LIMIT = 5_000
"""Maximum number of executions scanned for one page, so that a page costs the same however few of them match."""


class ExecutionQueries:
    """Lists executions over all jobs of the caller's tenant."""

    def __init__(self, execution_search: ExecutionSearch, presenter: Presenter, clock: Clock) -> None:
        self._execution_search = execution_search
        self._presenter = presenter
        self._clock = clock

    async def search(
        self, caller: Caller, where: ExecutionFilter, *, cursor: str | None = None, limit: int = 50
    ) -> ExecutionPage:
        """List executions, newest scheduled time first. Nothing is decrypted. A page may be short and still have a `next`."""
        page = await self._execution_search.search(
            caller.tenant, where, cursor, limit, most=SCAN_LIMIT, now_ms=self._clock.now_ms()
        )
        views = (self._presenter.execution(each.execution, each.job_name, summary=True) for each in page.found)
        return ExecutionPage(executions=tuple(views), next=page.next)
