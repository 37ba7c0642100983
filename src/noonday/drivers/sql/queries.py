"""Read jobs, executions and dead letters from a SQL database."""

from collections.abc import Collection
from typing import Any

import msgspec

from noonday.drivers.sql.sessions import SqlSessions, can_be_stored
from noonday.model.attempt import AttemptLogs
from noonday.model.execution import Execution, State
from noonday.model.filters import CallFilter, DeadFilterQuery, JobFilter
from noonday.model.firing import Decision, DecisionOutcome
from noonday.model.ids import FIRST_ID, LAST_ID, ExecutionId, JobId, TenantId, first_id_at, is_id
from noonday.model.rows import CallPage, DeadLetter, Definition, JobRow, KnownCall, WebhookRow, call_page
from noonday.ports.queries import QueryStore
from noonday.transitions.write_set import as_json


class _Payload(msgspec.Struct, frozen=True):
    id: JobId
    payload: bytes | None


class _DeclaredJob(msgspec.Struct, frozen=True):
    key: str
    id: JobId


class _NamedJobs(msgspec.Struct, frozen=True):
    name: str
    ids: list[JobId]


class _FoundDefinition(msgspec.Struct, frozen=True):
    job_id: JobId
    wanted: int
    """The revision that was asked for."""
    definition: Definition


class _ExaminedCalls(msgspec.Struct, frozen=True):
    calls: list[KnownCall]
    examined: int
    last: str | None


class SqlQueryStore(QueryStore):
    """Finds nothing for an id, a cursor or a text that no database can hold."""

    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("queries")

    async def find_job(self, tenant: TenantId, job_id: JobId) -> JobRow | None:
        if not is_id(job_id):
            return None
        found: JobRow | None = await self._sessions.decode(JobRow, self._sql.job, tenant, job_id)
        return found

    async def list_jobs(self, tenant: TenantId, where: JobFilter, after: str | None, limit: int) -> list[JobRow]:
        before = LAST_ID if after is None else after
        filters = (where.type, where.pool, where.handler, where.name, where.unique_key, where.tag, where.state)
        if not is_id(before) or not can_be_stored(*filters):
            return []
        query = self._sql.dead_jobs if where.state == "DEAD" else self._sql.jobs
        found: list[JobRow] = await self._query(list[JobRow], query, tenant, before, *filters, limit)
        return found

    async def payloads(self, tenant: TenantId, jobs: Collection[JobId]) -> dict[JobId, bytes | None]:
        found = await self._query(list[_Payload], self._sql.payloads, tenant, [job for job in jobs if is_id(job)])
        return {each.id: each.payload for each in found}

    async def definitions(
        self, tenant: TenantId, wanted: Collection[tuple[JobId, int]]
    ) -> dict[tuple[JobId, int], Definition]:
        revisions = as_json([{"job_id": job, "revision": revision} for job, revision in wanted])
        found = await self._query(list[_FoundDefinition], self._sql.definitions, tenant, revisions)
        return {(each.job_id, each.wanted): each.definition for each in found}

    async def keys_taken(self, tenant: TenantId, keys: Collection[str]) -> set[str]:
        return set(await self._sessions.decode(list[str], self._sql.keys_taken, tenant, list(keys)))

    async def jobs_named(self, tenant: TenantId, names: Collection[str]) -> dict[str, list[JobId]]:
        found = await self._sessions.decode(
            list[_NamedJobs], self._sql.jobs_named, tenant, [name for name in names if can_be_stored(name)]
        )
        return {each.name: each.ids for each in found if each.ids}

    async def declared_keys(self, tenant: TenantId, prefix: str) -> list[tuple[str, JobId]]:
        found = await self._sessions.decode(list[_DeclaredJob], self._sql.declared, tenant, prefix)
        return [(each.key, each.id) for each in found]

    async def jobs_waiting(self, tenant: TenantId, most: int) -> int:
        return int(await self._sessions.value(self._sql.jobs_waiting, tenant, most))

    async def next_one_shot_ms(self, tenant: TenantId) -> int | None:
        due_ms: int | None = await self._sessions.value(self._sql.next_one_shot, tenant)
        return due_ms

    async def list_tasks(self, tenant: TenantId, status: str | None, offset: int, limit: int) -> list[WebhookRow]:
        found: list[WebhookRow] = await self._query(list[WebhookRow], self._sql.tasks, tenant, status, offset, limit)
        return found

    async def count_tasks(self, tenant: TenantId, status: str | None, most: int) -> int:
        count: int = await self._sessions.query(
            lambda session: session.value(self._sql.count_tasks, tenant, status, most)
        )
        return count

    async def find_execution(self, tenant: TenantId, execution_id: ExecutionId) -> Execution | None:
        if not is_id(execution_id):
            return None
        found: Execution | None = await self._sessions.decode(Execution, self._sql.execution, tenant, execution_id)
        return found

    async def attempt_logs(self, tenant: TenantId, execution_id: ExecutionId) -> list[AttemptLogs]:
        if not is_id(execution_id):
            return []
        found: list[AttemptLogs] = await self._query(list[AttemptLogs], self._sql.attempt_logs, tenant, execution_id)
        return found

    async def list_executions(
        self, tenant: TenantId, job_id: JobId, *, state: str | None, after: str | None, limit: int
    ) -> list[Execution]:
        before = LAST_ID if after is None else after
        if not is_id(job_id) or not is_id(before):
            return []
        parameters = (tenant, job_id, before, _number_of(state), limit)
        found: list[Execution] = await self._query(list[Execution], self._sql.executions, *parameters)
        return found

    async def executions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Execution]:
        if not is_id(job_id):
            return []
        parameters = (job_id, first_id_at(from_ms), first_id_at(to_ms + 1), limit)
        found: list[Execution] = await self._query(list[Execution], self._sql.executions_between, *parameters)
        return found

    async def decisions_between(self, job_id: JobId, from_ms: int, to_ms: int, limit: int) -> list[Decision]:
        if not is_id(job_id):
            return []
        rows = await self._query(list[dict[str, Any]], self._sql.decisions_between, job_id, from_ms, to_ms, limit)
        return [Decision(**{**row, "outcome": DecisionOutcome(row["outcome"])}) for row in rows]

    async def list_calls(
        self, tenant: TenantId, where: CallFilter, after: str | None, limit: int, most: int
    ) -> CallPage:
        first = FIRST_ID if where.since_ms is None else first_id_at(where.since_ms)
        until = LAST_ID if where.until_ms is None else first_id_at(where.until_ms)
        before = after or LAST_ID
        if not is_id(before) or not can_be_stored(where.endpoint):
            return CallPage([], None)
        query = self._sql.calls
        parameters = [tenant, min(before, until), first, _number_of(where.state), where.endpoint, most, limit + 1]
        if where.job_id is not None:
            if not is_id(where.job_id):
                return CallPage([], None)
            query = self._sql.calls_of_task
            parameters.append(where.job_id)
        found: _ExaminedCalls = await self._query(_ExaminedCalls, query, *parameters)
        return call_page(found.calls, limit, found.last if found.examined >= most else None)

    async def find_calls(self, tenant: TenantId, executions: Collection[str]) -> dict[ExecutionId, KnownCall]:
        ids = [each for each in executions if is_id(each)]
        calls = await self._query(list[KnownCall], self._sql.known_calls, tenant, ids)
        return {call.execution.id: call for call in calls}

    async def list_dead(
        self, tenant: TenantId, where: DeadFilterQuery, after: str | None, limit: int
    ) -> list[DeadLetter]:
        before = LAST_ID if after is None else after
        ids = [before] if where.job_id is None else [before, where.job_id]
        if not all(map(is_id, ids)) or not can_be_stored(where.pool, where.handler, where.endpoint, where.error):
            return []
        job = (where.archived, where.job_id, where.pool, where.handler)
        task = (where.is_task, where.endpoint, where.error)
        parameters = (tenant, *job, where.since_ms, where.until_ms, before, limit, *task)
        found: list[DeadLetter] = await self._query(list[DeadLetter], self._sql.dead, *parameters)
        return found

    async def find_dead(
        self, tenant: TenantId, execution_id: ExecutionId
    ) -> tuple[int, bool, ExecutionId | None] | None:
        if not is_id(execution_id):
            return None
        row = await self._sessions.row(self._sql.dead_letter, tenant, execution_id)
        return None if row is None else (row["died_ms"], bool(row["archived"]), row["retried_as"])

    async def _query(self, kind: Any, query: str, *parameters: Any) -> Any:
        return await self._sessions.query(lambda session: session.decode(kind, query, *parameters))


def _number_of(state: str | None) -> int | None:
    return None if state is None else int(State[state])
