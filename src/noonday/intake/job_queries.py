"""Queries of jobs."""

import msgspec

from noonday.intake.lookup import get_job_row
from noonday.intake.paging import within_page
from noonday.intake.presenters import Presenter
from noonday.model.caller import Caller
from noonday.model.filters import JobFilter
from noonday.model.rows import JobRow
from noonday.model.view import JobPage, JobView
from noonday.ports.queries import QueryStore


class JobQueries:
    """Queries of jobs. They see only jobs of the caller's tenant."""

    def __init__(self, query_store: QueryStore, presenter: Presenter) -> None:
        self._query_store = query_store
        self._presenter = presenter

    async def get_job(self, caller: Caller, job_id: str, *, executions: int = 10, summary: bool = False) -> JobView:
        """Return a job with its latest executions. Raises NotFound."""
        row = await get_job_row(self._query_store, caller, job_id)
        latest = await self._query_store.list_executions(
            caller.tenant, row.job.id, state=None, after=None, limit=executions
        )
        return self._presenter.job(row, executions=latest, summary=summary)

    async def list_jobs(
        self,
        caller: Caller,
        *,
        state: str | None = None,
        pool: str | None = None,
        handler: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        unique_key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        summary: bool = False,
    ) -> JobPage:
        """List jobs. A page ends early if its payloads are large. With `summary` nothing is decrypted."""
        where = JobFilter(state, type, pool, handler, name, tag, unique_key)
        rows = await self._query_store.list_jobs(caller.tenant, where, cursor, limit + 1)
        shown = rows[:limit] if summary else within_page(rows[:limit], lambda row: row.payload_bytes)
        if summary:
            views = tuple(self._presenter.job(row, payload=None) for row in shown)
        else:
            with_payload = [row.job.id for row in shown if row.payload_bytes]
            payloads = await self._query_store.payloads(caller.tenant, with_payload) if with_payload else {}
            views = tuple(self._presenter.job(_with_payload(row, payloads.get(row.job.id))) for row in shown)
        return JobPage(jobs=views, next=views[-1].job_id if len(rows) > len(shown) else None)


def _with_payload(row: JobRow, payload: bytes | None) -> JobRow:
    return msgspec.structs.replace(row, job=msgspec.structs.replace(row.job, payload=payload))
