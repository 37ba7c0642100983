"""Store the profiles of users in a SQL database."""

from collections.abc import Collection, Mapping

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.ids import TenantId
from noonday.model.notifications.user import UserRow
from noonday.model.receipt import Receipt
from noonday.ports.notifications import Users
from noonday.transitions.write_set import as_json


class SqlUsers(Users):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("users")
        self._audit = AuditLog(sessions)

    async def put(
        self, tenant: TenantId, user_id: str, profile: bytes, now_ms: int, receipt: Receipt | None = None
    ) -> UserRow:
        async def work(session: SqlSession) -> UserRow:
            (row,) = await session.fetch(self._sql.put, tenant, user_id, profile, now_ms)
            await self._audit.add(session, None, receipt)
            return UserRow(**row)

        return await self._sessions.write(work)

    async def find_many(self, users: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], UserRow]:
        named = as_json([{"tenant": tenant, "user_id": user_id} for tenant, user_id in users])
        rows = [UserRow(**row) for row in await self._sessions.fetch(self._sql.find_many, named)]
        return {(row.tenant, row.user_id): row for row in rows}

    async def delete(self, tenant: TenantId, user_id: str) -> bool:
        return await self._sessions.write(lambda session: session.value(self._sql.delete, tenant, user_id)) is not None
