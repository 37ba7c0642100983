"""What is kept about endpoints, in PostgreSQL."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from noonday.drivers.postgres.connection import Database
from noonday.drivers.postgres.jobs import add_audit, keep_receipt
from noonday.drivers.postgres.queries import load
from noonday.model.ids import TenantId
from noonday.ports.endpoints import Endpoints, Secret, SecretKind, Whom, to_sign_with
from noonday.ports.jobs import AuditEntry, Receipt

SQL = load("endpoints")
SHOWN_MS = 30 * 86_400_000
"""How long a secret is listed after its end."""


class PostgresEndpoints(Endpoints):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_secret(
        self, secret: Secret, former_until_ms: int, audit: AuditEntry | None, receipt: Receipt | None = None
    ) -> bool:
        columns = msgspec.structs.astuple(secret)
        async with self._database.transaction() as session:
            await session.execute(SQL.drop_ended, secret.tenant, secret.created_ms - SHOWN_MS)
            if await session.fetchval(SQL.add_secret, *columns) is None:
                return False
            former = (secret.tenant, secret.endpoint, former_until_ms, secret.created_ms, secret.id)
            await session.execute(SQL.end_former, *former)
            if audit:
                await add_audit(session, audit)
            if receipt:
                await keep_receipt(session, receipt)
        return True

    async def end_secret(self, tenant: TenantId, secret: str, now_ms: int, audit: AuditEntry) -> Secret | None:
        async with self._database.transaction() as session:
            row = await session.fetchrow(SQL.end_secret, tenant, secret, now_ms)
            if row is not None:
                await add_audit(session, audit)
        return _secret(row) if row is not None else None

    async def secrets(self, tenant: TenantId) -> list[Secret]:
        return [_secret(row) for row in await self._database.fetch(SQL.secrets, tenant)]

    async def sealed_for(self, whom: Collection[Whom], now_ms: int) -> Mapping[Whom, tuple[bytes, ...]]:
        tenants, endpoints = [tenant for tenant, _ in whom], [endpoint for _, endpoint in whom]
        rows = await self._database.fetch(SQL.secrets_for, tenants, endpoints)
        return to_sign_with([_secret(row) for row in rows], whom, now_ms)


def _secret(row: Any) -> Secret:
    tenant, name, endpoint, kind, *rest = row
    return Secret(tenant, name, endpoint, SecretKind(kind), *rest)
