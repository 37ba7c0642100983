"""What is kept about endpoints, in SQLite."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping

import msgspec

from noonday.drivers.sqlite.connection import Database
from noonday.drivers.sqlite.jobs import add_audit, keep_receipt
from noonday.drivers.sqlite.queries import load
from noonday.ledger.ledger import as_json
from noonday.model.ids import TenantId
from noonday.ports.endpoints import Endpoints, Secret, SecretKind, Whom, to_sign_with
from noonday.ports.jobs import AuditEntry, Receipt

SQL = load("endpoints")
SHOWN_MS = 30 * 86_400_000
"""How long a secret is listed after its end."""


class SqliteEndpoints(Endpoints):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_secret(
        self, secret: Secret, former_until_ms: int, audit: AuditEntry | None, receipt: Receipt | None = None
    ) -> bool:
        def work(conn: sqlite3.Connection) -> bool:
            if conn.execute(SQL.has_secret, (secret.tenant, secret.id)).fetchone():
                return False
            conn.execute(SQL.drop_ended, (secret.tenant, secret.created_ms - SHOWN_MS))
            conn.execute(SQL.end_former, (secret.tenant, secret.endpoint, former_until_ms, secret.created_ms))
            conn.execute(SQL.add_secret, msgspec.structs.astuple(secret))
            if audit:
                add_audit(conn, audit)
            if receipt:
                keep_receipt(conn, receipt)
            return True

        return await self._database.write(work)

    async def end_secret(self, tenant: TenantId, secret: str, now_ms: int, audit: AuditEntry) -> Secret | None:
        def work(conn: sqlite3.Connection) -> Secret | None:
            row = conn.execute(SQL.end_secret, (tenant, secret, now_ms)).fetchone()
            if row is None:
                return None
            add_audit(conn, audit)
            return _secret(row)

        return await self._database.write(work)

    async def secrets(self, tenant: TenantId) -> list[Secret]:
        return await self._read(SQL.secrets, tenant)

    async def sealed_for(self, whom: Collection[Whom], now_ms: int) -> Mapping[Whom, tuple[bytes, ...]]:
        return to_sign_with(await self._read(SQL.secrets_for, as_json(list(whom))), whom, now_ms)

    async def _read(self, query: str, parameter: str) -> list[Secret]:
        rows: Iterable[sqlite3.Row] = await self._database.read(
            lambda conn: conn.execute(query, (parameter,)).fetchall()
        )
        return [_secret(row) for row in rows]


def _secret(row: sqlite3.Row) -> Secret:
    tenant, name, endpoint, kind, *rest = row
    return Secret(tenant, name, endpoint, SecretKind(kind), *rest)
