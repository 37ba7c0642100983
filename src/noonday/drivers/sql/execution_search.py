"""Search the executions of all jobs in a SQL database."""

from collections.abc import Collection

import msgspec

from noonday.drivers.sql.sessions import SqlSessions, can_be_stored
from noonday.model.execution import State
from noonday.model.found_executions import (
    ExecutionFilter,
    ExecutionGroup,
    FoundExecution,
    FoundPage,
    GroupedBy,
    GroupedExecutions,
)
from noonday.model.ids import (
    FIRST_ID,
    LAST_ID,
    ExecutionId,
    TenantId,
    bounds_of_prefix,
    first_id_at,
    is_id,
    is_id_prefix,
)
from noonday.ports.execution_search import ExecutionSearch


class _Examined(msgspec.Struct, frozen=True):
    found: list[FoundExecution]
    examined: int
    last: str | None


class _Grouped(msgspec.Struct, frozen=True):
    groups: list[ExecutionGroup]
    examined: int


class SqlExecutionSearch(ExecutionSearch):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("execution_search")

    async def search(
        self, tenant: TenantId, where: ExecutionFilter, after: str | None, limit: int, *, most: int, now_ms: int
    ) -> FoundPage:
        ids = [each for each in (after, where.job_id) if each is not None]
        texts = (where.pool, where.handler, where.tag, where.worker)
        prefix = where.id_prefix or ""
        if not all(map(is_id, ids)) or not can_be_stored(*texts) or not is_id_prefix(prefix):
            return FoundPage([], None)
        first, until = _bounds(where)
        of_prefix = bounds_of_prefix(prefix)
        first, until = max(first, of_prefix[0]), min(until, of_prefix[1])
        state = None if where.state is None else int(State[where.state])
        times = (where.late_over_ms, where.took_over_ms, now_ms)
        query = self._sql.search
        parameters = [tenant, min(after or LAST_ID, until), first, most, limit + 1, state, *texts, *times]
        if where.job_id is not None:
            query = self._sql.search_of_job
            parameters.append(where.job_id)
        examined: _Examined = await self._sessions.query(lambda session: session.decode(_Examined, query, *parameters))
        if len(examined.found) > limit:
            return FoundPage(examined.found[:limit], examined.found[limit - 1].execution.id)
        return FoundPage(examined.found, examined.last if examined.examined >= most else None)

    async def groups(
        self, tenant: TenantId, where: ExecutionFilter, by: GroupedBy, limit: int, *, most: int, now_ms: int
    ) -> GroupedExecutions:
        if not can_be_stored(where.pool, where.handler):
            return GroupedExecutions([], False)
        first, until = _bounds(where)
        state = None if where.state is None else int(State[where.state])
        parameters = (tenant, until, first, most, limit, state, where.pool, where.handler, by.value, now_ms)
        grouped: _Grouped = await self._sessions.query(
            lambda session: session.decode(_Grouped, self._sql.groups, *parameters)
        )
        return GroupedExecutions(grouped.groups, grouped.examined >= most)

    async def open_among(self, executions: Collection[ExecutionId]) -> set[ExecutionId]:
        ids = [each for each in executions if is_id(each)]
        return set(await self._sessions.decode(list[ExecutionId], self._sql.open_among, ids)) if ids else set()


def _bounds(where: ExecutionFilter) -> tuple[str, str]:
    """Return the ids between which the nominal times of a filter are: the first one, and the one after the last."""
    first = FIRST_ID if where.since_ms is None else first_id_at(where.since_ms)
    return first, LAST_ID if where.until_ms is None else first_id_at(where.until_ms)
