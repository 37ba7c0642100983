"""Select jobs and dead letters in a SQL database."""

from collections.abc import Collection

import msgspec

from noonday.drivers.sql.sessions import SqlSessions, can_be_stored
from noonday.model.ids import LAST_ID, ExecutionId, TenantId, first_id_at, is_id
from noonday.model.pool import NOTICES_POOL
from noonday.model.selection import (
    DeadSelection,
    DeadSelector,
    JobSelection,
    JobSelector,
    RunEnd,
    SelectedDeadLetter,
    SelectedJob,
)
from noonday.ports.selection import Selection


class _Examined(msgspec.Struct, frozen=True):
    examined: int
    last: str | None


class _ExaminedJobs(_Examined, frozen=True):
    found: list[SelectedJob]


class _ExaminedLetters(_Examined, frozen=True):
    found: list[SelectedDeadLetter]


class SqlSelection(Selection):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("selection")

    async def jobs(
        self, tenant: TenantId, where: JobSelector, after: str | None, limit: int, *, until_ms: int, most: int
    ) -> JobSelection:
        conditions = (where.type, where.pool, where.handler, where.name, where.unique_key, where.tag, where.state)
        if not is_id(after or LAST_ID) or not can_be_stored(*conditions):
            return JobSelection([], None)
        before = min(after or LAST_ID, first_id_at(until_ms))
        parameters = (tenant, before, most, limit + 1, *conditions, NOTICES_POOL)
        page: _ExaminedJobs = await self._sessions.query(
            lambda session: session.decode(_ExaminedJobs, self._sql.jobs, *parameters)
        )
        found = page.found[:limit]
        return JobSelection(found, _next(page, len(page.found) > limit, found[-1].id if found else None, most))

    async def dead_letters(
        self, tenant: TenantId, where: DeadSelector, after: str | None, limit: int, *, most: int
    ) -> DeadSelection:
        ids = [each for each in (after, where.job_id) if each is not None]
        texts = (where.pool, where.handler, where.error)
        if not all(map(is_id, ids)) or not can_be_stored(*texts):
            return DeadSelection([], None)
        died = (where.since_ms, where.until_ms)
        parameters = (
            tenant,
            after or LAST_ID,
            most,
            limit + 1,
            where.job_id,
            where.pool,
            where.handler,
            *died,
            where.error,
        )
        page: _ExaminedLetters = await self._sessions.query(
            lambda session: session.decode(_ExaminedLetters, self._sql.dead_letters, *parameters)
        )
        found = page.found[:limit]
        return DeadSelection(found, _next(page, len(page.found) > limit, found[-1].id if found else None, most))

    async def run_ends(self, tenant: TenantId, runs: Collection[ExecutionId]) -> list[RunEnd]:
        ids = [each for each in runs if is_id(each)]
        if not ids:
            return []
        found: list[RunEnd] = await self._sessions.decode(list[RunEnd], self._sql.run_ends, tenant, ids)
        return found


def _next(page: _Examined, is_full: bool, last_found: str | None, most: int) -> str | None:
    """Return where the next page begins: after the last item found if the page is full, else after the last one examined."""
    return last_found if is_full else page.last if page.examined >= most else None
