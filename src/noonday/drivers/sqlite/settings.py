"""Store settings, pauses and the audit in SQLite."""

import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.jobs import add_audit
from noonday.drivers.sqlite.stored_json import decode
from noonday.drivers.sqlite.write_sets import rows_of
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.message import HandlerInfo
from noonday.model.pause import Pause
from noonday.model.slots import NOBODY, SlotKey, Slots, caps_of_pool, caps_of_tenant, pool_in
from noonday.model.stored import read_stored
from noonday.model.view import PoolSettings, TenantSettings
from noonday.ports.settings import SettingsStore
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "settings")
_audit_row = tuple[str, int, str, str, str, dict[str, object]]


class SqliteSettingsStore(SettingsStore):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def find_tenant(self, tenant: TenantId) -> tuple[TenantSettings, int] | None:
        row = await self._database.read(lambda conn: conn.execute(SQL.tenant, (tenant,)).fetchone())
        return (read_stored(row[0], TenantSettings), row[1]) if row else None

    async def tenants_after(self, seq: int) -> list[tuple[TenantId, TenantSettings, int]]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.tenants_after, seq))
        return [(TenantId(id_), read_stored(text, TenantSettings), number) for id_, text, number in rows]

    async def put_tenant(self, tenant: TenantId, settings: TenantSettings, audit: AuditEntry) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.put_tenant, (tenant, as_json(settings), audit.at_ms))
            _set_caps(conn, tenant, caps_of_tenant(tenant, settings))
            add_audit(conn, audit)

        await self._database.write(work)

    async def pool_names(self) -> list[str]:
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.pool_names))
        return [row[0] for row in rows]

    async def find_handler(self, pool: str, handler: str) -> HandlerInfo | None:
        found: HandlerInfo | None = await self._database.read(
            lambda conn: decode(conn, HandlerInfo, SQL.handler, pool, handler)
        )
        return found

    async def put_pool(self, name: str, settings: PoolSettings, audit: AuditEntry) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(SQL.put_pool, (name, as_json(settings)))
            _set_caps(conn, NOBODY, caps_of_pool(name, settings))
            add_audit(conn, audit)

        await self._database.write(work)

    async def capped_pools(self) -> list[str]:
        return [name for (name,) in await self._database.read(lambda conn: rows_of(conn, SQL.capped_pools))]

    async def slots(self, keys: Collection[SlotKey]) -> dict[SlotKey, Slots]:
        slots = as_json(list(keys))
        rows = await self._database.read(lambda conn: rows_of(conn, SQL.slots, slots))
        return {(tenant, name): Slots(used, cap) for tenant, name, used, cap in rows}

    async def pauses(self) -> list[Pause]:
        return [Pause(*row) for row in await self._database.read(lambda conn: rows_of(conn, SQL.pauses))]

    async def add_pause(self, pause: Pause, audit: AuditEntry) -> None:
        await self._audited(SQL.add_pause, pause, audit)

    async def remove_pause(self, kind: str, name: str, audit: AuditEntry) -> None:
        await self._audited(SQL.remove_pause, (kind, name), audit)

    async def list_audit(
        self, tenant: TenantId, *, target: str | None, subject: str | None, after: int | None, limit: int
    ) -> list[tuple[int, AuditEntry]]:
        kind = list[tuple[int, _audit_row]]
        rows = await self._database.query(
            lambda conn: decode(conn, kind, SQL.audit, tenant, target, subject, after, limit)
        )
        return [(number, AuditEntry(TenantId(row[0]), *row[1:])) for number, row in rows]

    async def note_visit(self, audit: AuditEntry) -> None:
        row = (audit.tenant, audit.at_ms, audit.subject, audit.action, audit.target, as_json(audit.detail))
        await self._database.write(lambda conn: conn.execute(SQL.note_visit, row))

    async def _audited(self, query: str, parameters: tuple[Any, ...], audit: AuditEntry) -> None:
        def work(conn: sqlite3.Connection) -> None:
            conn.execute(query, tuple(parameters))
            add_audit(conn, audit)

        await self._database.write(work)


def _set_caps(conn: sqlite3.Connection, owner: str, caps: Mapping[SlotKey, int | None]) -> None:
    for _, name in caps:
        conn.execute(SQL.uncap, (owner, name))
    for (_, name), cap in caps.items():
        if cap is not None:
            counted = conn.execute(SQL.count_in, (name, owner, pool_in(name))).rowcount
            conn.execute(SQL.cap, (owner, name, counted, cap))
    conn.execute(SQL.drop_free_slots)
