"""Store the accounts of tenants at providers in a SQL database."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.notifications.sending import ProviderKind, ProviderLimits
from noonday.model.notifications.user import AccountRow
from noonday.model.receipt import Receipt
from noonday.model.stored import read_stored
from noonday.ports.notifications import ProviderAccounts
from noonday.transitions.write_set import as_json


class SqlProviderAccounts(ProviderAccounts):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("provider_accounts")
        self._audit = AuditLog(sessions)

    async def put(self, account: AccountRow, most: int, audit: AuditEntry, receipt: Receipt | None = None) -> bool:
        async def work(session: SqlSession) -> bool:
            if await session.value(self._sql.count_others, account.tenant, account.name) >= most:
                return False
            await session.execute(self._sql.put, *self._sql.values(self._sql.put, _stored(account)))
            await self._audit.add(session, audit, receipt)
            return True

        return await self._sessions.write(work)

    async def find(self, tenant: TenantId, name: str) -> AccountRow | None:
        row = await self._sessions.row(self._sql.find, tenant, name)
        return None if row is None else _account(row)

    async def has_any(self) -> bool:
        return await self._sessions.row(self._sql.has_any) is not None

    async def accounts_of(self, tenants: Collection[str]) -> list[AccountRow]:
        return [_account(row) for row in await self._sessions.fetch(self._sql.accounts, sorted(set(tenants)))]

    async def delete(self, tenant: TenantId, name: str, audit: AuditEntry) -> bool:
        async def work(session: SqlSession) -> bool:
            if await session.row(self._sql.delete, tenant, name) is None:
                return False
            await self._audit.add(session, audit)
            return True

        return await self._sessions.write(work)

    async def stop(self, tenant: TenantId, name: str, version: int, why: str, now_ms: int) -> bool:
        parameters = (tenant, name, version, why, now_ms)
        return await self._sessions.write(lambda session: session.value(self._sql.stop, *parameters)) is not None


class _StoredAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of an account that is put."""

    tenant: str
    name: str
    kind: str
    try_order: int
    limits: str
    settings: str
    secrets: bytes
    created_ms: int
    updated_ms: int


def _stored(account: AccountRow) -> _StoredAccount:
    return _StoredAccount(
        tenant=account.tenant,
        name=account.name,
        kind=account.kind.value,
        try_order=account.order,
        limits=as_json(account.limits),
        settings=as_json(account.settings),
        secrets=account.secrets,
        created_ms=account.created_ms,
        updated_ms=account.updated_ms,
    )


def _account(row: Mapping[str, Any]) -> AccountRow:
    return AccountRow(
        tenant=row["tenant"],
        name=row["name"],
        kind=ProviderKind(row["kind"]),
        order=row["try_order"],
        limits=read_stored(row["limits"], ProviderLimits),
        settings=msgspec.json.decode(row["settings"]),
        secrets=bytes(row["secrets"]),
        fault=row["fault"],
        fault_ms=row["fault_ms"],
        version=row["version"],
        created_ms=row["created_ms"],
        updated_ms=row["updated_ms"],
    )
