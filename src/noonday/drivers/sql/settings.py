"""Store settings, pauses and the audit in a SQL database."""

from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec

from noonday.drivers.sql.audit import AuditLog, audit_columns
from noonday.drivers.sql.sessions import SqlSession, SqlSessions, can_be_stored
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.message import HandlerInfo
from noonday.model.pause import Pause
from noonday.model.slots import NOBODY, SlotKey, Slots, caps_of_pool, caps_of_tenant
from noonday.model.stored import read_stored
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.settings import SettingsStore
from noonday.transitions.write_set import as_json

LAST_NUMBER = 2**63 - 1
"""The greatest number of an audit entry."""
SetCaps = Callable[[SqlSession, str, Mapping[SlotKey, int | None]], Awaitable[None]]
"""Replace the caps of a tenant or of a pool, and count the dispatched executions against them."""


class _Tenant(msgspec.Struct, frozen=True):
    id: TenantId
    settings: TenantSettings
    seq: int


class _Slot(msgspec.Struct, frozen=True):
    tenant: str
    key: str
    used: int
    cap: int | None


class _NumberedEntry(msgspec.Struct, frozen=True):
    number: int
    entry: AuditEntry


class SqlSettingsStore(SettingsStore):
    def __init__(self, sessions: SqlSessions, set_caps: SetCaps) -> None:
        self._sessions = sessions
        self._set_caps = set_caps
        self._sql = sessions.statements("settings")
        self._audit = AuditLog(sessions)

    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None:
        row = await self._sessions.row(self._sql.tenant, tenant)
        return None if row is None else (read_stored(row["settings"], TenantSettings), row["updated_ms"])

    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        tenants = await self._sessions.decode(list[_Tenant], self._sql.tenants_after, seq)
        return [(each.id, each.settings, each.seq) for each in tenants]

    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        async def work(session: SqlSession) -> None:
            await session.execute(self._sql.put_tenant, tenant, as_json(settings), audit.at_ms)
            await self._set_caps(session, tenant, caps_of_tenant(tenant, settings))
            await self._audit.add(session, audit)

        await self._sessions.write(work)

    async def pool_names(self) -> list[str]:
        names: list[str] = await self._sessions.decode(list[str], self._sql.pool_names)
        return names

    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None:
        found: HandlerInfo | None = await self._sessions.decode(HandlerInfo, self._sql.handler, pool, handler)
        return found

    async def handler_names(self, pool: str, most: int) -> list[str]:
        names: list[str] = await self._sessions.decode(list[str], self._sql.handler_names, pool, most)
        return names

    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        async def work(session: SqlSession) -> None:
            await session.execute(self._sql.put_pool, name, as_json(settings))
            await self._set_caps(session, NOBODY, caps_of_pool(name, settings))
            await self._audit.add(session, audit)

        await self._sessions.write(work)

    async def capped_pools(self) -> list[str]:
        names: list[str] = await self._sessions.decode(list[str], self._sql.capped_pools)
        return names

    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        named = as_json([{"tenant": tenant, "key": key} for tenant, key in keys])
        found = await self._sessions.decode(list[_Slot], self._sql.slots, named)
        return {(each.tenant, each.key): Slots(each.used, each.cap) for each in found}

    async def pauses(self) -> list[Pause]:
        return [Pause(**row) for row in await self._sessions.fetch(self._sql.pauses)]

    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        async def work(session: SqlSession) -> None:
            await session.execute(self._sql.add_pause, *pause)
            await self._audit.add(session, audit)

        await self._sessions.write(work)

    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        async def work(session: SqlSession) -> None:
            await session.execute(self._sql.remove_pause, kind, name)
            await self._audit.add(session, audit)

        await self._sessions.write(work)

    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        if not can_be_stored(target, subject):
            return []
        parameters = (tenant, target, subject, LAST_NUMBER if after is None else after, limit)
        found = await self._sessions.query(
            lambda session: session.decode(list[_NumberedEntry], self._sql.audit, *parameters)
        )
        return [(each.number, each.entry) for each in found]

    async def note_visit(self, audit: AuditEntry) -> None:
        await self._sessions.write(lambda session: session.execute(self._sql.note_visit, *audit_columns(audit)))
