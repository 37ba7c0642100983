"""Store settings, pauses and the audit in PostgreSQL."""

from collections.abc import Collection, Mapping
from typing import Any

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.jobs import add_audit
from noonday.drivers.postgres.stored_json import can_be_stored, decode
from noonday.drivers.sql.named_sql import load
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.message import HandlerInfo
from noonday.model.pause import Pause
from noonday.model.slots import NOBODY, SlotKey, Slots, caps_of_pool, caps_of_tenant, pool_in
from noonday.model.stored import read_stored
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.settings import SettingsStore
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "settings")
LAST_NUMBER = 2**63 - 1
_audit_row = tuple[int, tuple[TenantId, int, str, str, str, dict[str, object]]]


class PostgresSettingsStore(SettingsStore):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None:
        row = await self._database.row(SQL.tenant, tenant)
        return (read_stored(row[0], TenantSettings), row[1]) if row else None

    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        rows = await self._database.fetch(SQL.tenants_after, seq)
        return [(TenantId(id_), read_stored(text, TenantSettings), number) for id_, text, number in rows]

    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        async with self._database.transaction() as session:
            await session.execute(SQL.put_tenant, tenant, as_json(settings), audit.at_ms)
            await _set_caps(session, tenant, caps_of_tenant(tenant, settings))
            await add_audit(session, audit)

    async def pool_names(self) -> list[str]:
        return [name for (name,) in await self._database.fetch(SQL.pool_names)]

    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None:
        found: HandlerInfo | None = await self._decode(HandlerInfo, SQL.handler, pool, handler)
        return found

    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        async with self._database.transaction() as session:
            await session.execute(SQL.put_pool, name, as_json(settings))
            await _set_caps(session, NOBODY, caps_of_pool(name, settings))
            await add_audit(session, audit)

    async def capped_pools(self) -> list[str]:
        return [name for (name,) in await self._database.fetch(SQL.capped_pools)]

    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        rows = await self._database.fetch(SQL.slots, [tenant for tenant, _ in keys], [name for _, name in keys])
        return {(tenant, name): Slots(used, cap) for tenant, name, used, cap in rows}

    async def pauses(self) -> list[Pause]:
        return [Pause(*row) for row in await self._database.fetch(SQL.pauses)]

    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        await self._audited(SQL.add_pause, pause, audit)

    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        await self._audited(SQL.remove_pause, (kind, name), audit)

    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        if not can_be_stored(target, subject):
            return []
        before = LAST_NUMBER if after is None else after
        rows = await self._decode(list[_audit_row], SQL.audit, tenant, target, subject, before, limit)
        return [(number, AuditEntry(*entry)) for number, entry in rows]

    async def note_visit(self, audit: AuditEntry) -> None:
        row = (audit.tenant, audit.at_ms, audit.subject, audit.action, audit.target, as_json(audit.detail))
        async with self._database.transaction() as session:
            await session.execute(SQL.note_visit, *row)

    async def _audited(self, query: str, parameters: tuple[Any, ...], audit: AuditEntry) -> None:
        async with self._database.transaction() as session:
            await session.execute(query, *parameters)
            await add_audit(session, audit)

    async def _decode(self, kind: Any, query: str, *parameters: Any) -> Any:
        async with self._database.session() as session:
            return await decode(session, kind, query, *parameters)


async def _set_caps(session: Session, owner: str, caps: Mapping[SlotKey, int | None]) -> None:
    names = [name for _, name in caps]
    await session.fetchval(SQL.set_caps, owner, names, [pool_in(name) for name in names], list(caps.values()))
