"""Store bulk operations in a SQL database."""

import msgspec

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.audit import AuditEntry
from noonday.model.ids import LAST_ID, TenantId, is_id
from noonday.model.operation import BulkOperation
from noonday.model.receipt import Receipt
from noonday.ports.operations import Operations
from noonday.transitions.write_set import as_json

OF_ONE_TENANT = 5
"""How many due operations are read for each that is returned. A tenant has no more that run."""


class SqlOperations(Operations):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("operations")
        self._audit = AuditLog(sessions)

    async def add(
        self, operation: BulkOperation, most_running: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        async def work(session: SqlSession) -> bool:
            await session.execute(self._sql.lock_tenant, operation.tenant)
            if await session.value(self._sql.count_running, operation.tenant) >= most_running:
                return False
            await session.execute(self._sql.add_operation, *_columns(operation, operation.version))
            await self._audit.add(session, audit, receipt)
            return True

        return await self._sessions.write(work)

    async def find(self, tenant: TenantId, operation_id: str) -> BulkOperation | None:
        if not is_id(operation_id):
            return None
        found: BulkOperation | None = await self._sessions.decode(
            BulkOperation, self._sql.find_operation, tenant, operation_id
        )
        return found

    async def list_operations(self, tenant: TenantId, after: str | None, limit: int) -> list[BulkOperation]:
        before = LAST_ID if after is None else after
        if not is_id(before):
            return []
        found: list[BulkOperation] = await self._sessions.decode(
            list[BulkOperation], self._sql.operations, tenant, before, limit
        )
        return found

    async def due(self, now_ms: int, limit: int) -> list[BulkOperation]:
        found: list[BulkOperation] = await self._sessions.decode(
            list[BulkOperation], self._sql.due_operations, now_ms, limit * OF_ONE_TENANT
        )
        first_of = {each.tenant: each for each in reversed(found)}
        return [each for each in found if first_of[each.tenant] is each][:limit]

    async def next_due_ms(self) -> int | None:
        next_ms: int | None = await self._sessions.value(self._sql.next_due)
        return next_ms

    async def replace(
        self, operation: BulkOperation, audit: AuditEntry | None = None, receipt: Receipt | None = None
    ) -> bool:
        async def work(session: SqlSession) -> bool:
            following = msgspec.structs.replace(operation, version=operation.version + 1)
            columns = _columns(following, operation.version)
            if await session.row(self._sql.set_operation, *columns) is None:
                return False
            await self._audit.add(session, audit, receipt)
            return True

        return await self._sessions.write(work)

    async def prune(self, before_ms: int, limit: int) -> int:
        async def work(session: SqlSession) -> int:
            return len(await session.fetch(self._sql.drop_operations, before_ms, limit))

        return await self._sessions.write(work)


def _columns(operation: BulkOperation, version: int) -> tuple[str | int | None, ...]:
    state, next_ms, ended_ms = operation.state.value, operation.next_ms, operation.ended_ms
    return operation.tenant, operation.id, version, state, next_ms, ended_ms, as_json(operation)
