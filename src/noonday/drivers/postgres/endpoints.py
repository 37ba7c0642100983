"""Store the secrets, settings and health of endpoints in PostgreSQL."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from noonday.drivers.postgres.connection import PostgresDatabase
from noonday.drivers.postgres.jobs import add_audit, keep_receipt
from noonday.drivers.sql.named_sql import load
from noonday.model.audit import AuditEntry
from noonday.model.endpoint import (
    DISABLE_AFTER_DAYS,
    LEAST_FAILURES,
    QUIET_MS,
    EndpointLimits,
    EndpointRow,
    EndpointSettings,
    Failures,
    limits_in,
    row_of,
)
from noonday.model.ids import JobId, TenantId
from noonday.model.receipt import Receipt
from noonday.model.secret import EndpointKey, Secret, SecretKind, to_sign_with
from noonday.ports.endpoints import Endpoints
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "endpoints")
SHOWN_MS = 30 * 86_400_000
"""How long a secret is listed after its end, in ms."""
NO_ID = "00000000-0000-0000-0000-000000000000"


class PostgresEndpoints(Endpoints):
    def __init__(self, database: PostgresDatabase) -> None:
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

    async def sealed_for(self, whom: Collection[EndpointKey], now_ms: int) -> Mapping[EndpointKey, tuple[bytes, ...]]:
        rows = await self._database.fetch(SQL.secrets_for, *_columns(whom))
        return to_sign_with([_secret(row) for row in rows], whom, now_ms)

    async def find(self, whom: EndpointKey) -> EndpointRow | None:
        row = await self._database.row(SQL.endpoint, *whom)
        return None if row is None else row_of(row)

    async def list_endpoints(self, tenant: TenantId, after: str | None, limit: int) -> list[EndpointRow]:
        return [row_of(row) for row in await self._database.fetch(SQL.endpoints, tenant, after or "", limit)]

    async def put(self, whom: EndpointKey, settings: EndpointSettings, now_ms: int, audit: AuditEntry) -> EndpointRow:
        async with self._database.transaction() as session:
            await session.execute(SQL.put_settings, *whom, as_json(settings), now_ms)
            await add_audit(session, audit)
            return row_of(await session.fetchrow(SQL.endpoint, *whom))

    async def limits_of(self, whom: Collection[EndpointKey]) -> Mapping[EndpointKey, EndpointLimits]:
        return limits_in(await self._database.fetch(SQL.settings_of, *_columns(whom)))

    async def note_calls(
        self, succeeded: Collection[EndpointKey], failed: Mapping[EndpointKey, Failures], now_ms: int
    ) -> None:
        # All writers use the same order, so that no two of them wait for each other.
        names = sorted(failed)
        counts, errors = [failed[each].count for each in names], [failed[each].error for each in names]
        async with self._database.transaction() as session:
            if succeeded:
                await session.execute(SQL.note_successes, *_columns(sorted(succeeded)), now_ms)
            if names:
                await session.execute(SQL.note_failures, *_columns(names), counts, errors, now_ms, QUIET_MS)

    async def hopeless(self, now_ms: int, limit: int) -> list[EndpointRow]:
        rows = await self._database.fetch(SQL.hopeless, now_ms, LEAST_FAILURES, DISABLE_AFTER_DAYS, limit)
        return [row_of(row) for row in rows]

    async def disable(
        self, whom: EndpointKey, why: str, now_ms: int, audit: AuditEntry, *, failing_since_ms: int | None = None
    ) -> bool:
        async with self._database.transaction() as session:
            if await session.fetchval(SQL.disable, *whom, why, now_ms, failing_since_ms) is None:
                return False
            await session.execute(SQL.add_incident, whom[0], f"{whom[1]} {why}", now_ms)
            await add_audit(session, audit)
        return True

    async def enable(self, whom: EndpointKey, now_ms: int, audit: AuditEntry) -> bool:
        async with self._database.transaction() as session:
            if await session.fetchval(SQL.enable, *whom, now_ms) is None:
                return False
            await add_audit(session, audit)
        return True

    async def unsettled(self, limit: int) -> list[tuple[EndpointRow, int]]:
        return [(row_of(tuple(row)[:-1]), row[-1]) for row in await self._database.fetch(SQL.unsettled, limit)]

    async def settled(self, whom: EndpointKey, since_ms: int) -> None:
        await self._database.fetch(SQL.settled, *whom, since_ms)

    async def tasks_to_halt(self, whom: EndpointKey, after: JobId | None, limit: int) -> list[JobId]:
        return [row[0] for row in await self._database.fetch(SQL.tasks_to_halt, *whom, after or NO_ID, limit)]

    async def tasks_to_resume(self, whom: EndpointKey, halted: str, after: JobId | None, limit: int) -> list[JobId]:
        rows = await self._database.fetch(SQL.tasks_to_resume, *whom, after or NO_ID, limit, halted)
        return [row[0] for row in rows]

    async def forget(self, unused_since_ms: int, limit: int) -> int:
        return len(await self._database.fetch(SQL.forget, unused_since_ms, limit))


def _columns(whom: Iterable[EndpointKey]) -> tuple[list[TenantId], list[str]]:
    names = list(whom)
    return [tenant for tenant, _ in names], [endpoint for _, endpoint in names]


def _secret(row: Any) -> Secret:
    tenant, name, endpoint, kind, *rest = row
    return Secret(tenant, name, endpoint, SecretKind(kind), *rest)
