"""Store the secrets, settings and health of endpoints in a SQL database."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import Row, SqlSession, SqlSessions
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
from noonday.model.ids import FIRST_ID, JobId, TenantId
from noonday.model.receipt import Receipt
from noonday.model.secret import EndpointKey, Secret, SecretKind, to_sign_with
from noonday.ports.endpoints import Endpoints
from noonday.transitions.write_set import as_json

SHOWN_MS = 30 * 86_400_000
"""Milliseconds for which a secret is listed after its end."""


class SqlEndpoints(Endpoints):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("endpoints")
        self._audit = AuditLog(sessions)

    async def add_secret(
        self, secret: Secret, former_until_ms: int, audit: AuditEntry | None, receipt: Receipt | None = None
    ) -> bool:
        former = (secret.tenant, secret.endpoint, former_until_ms, secret.created_ms, secret.id)

        async def work(session: SqlSession) -> bool:
            await session.execute(self._sql.drop_ended, secret.tenant, secret.created_ms - SHOWN_MS)
            if await session.row(self._sql.add_secret, *self._sql.values(self._sql.add_secret, secret)) is None:
                return False
            await session.execute(self._sql.end_former, *former)
            await self._audit.add(session, audit, receipt)
            return True

        return await self._sessions.write(work)

    async def end_secret(self, tenant: TenantId, secret: str, now_ms: int, audit: AuditEntry) -> Secret | None:
        async def work(session: SqlSession) -> Secret | None:
            row = await session.row(self._sql.end_secret, tenant, secret, now_ms)
            if row is None:
                return None
            await self._audit.add(session, audit)
            return _secret(row)

        return await self._sessions.write(work)

    async def secrets(self, tenant: TenantId) -> list[Secret]:
        return [_secret(row) for row in await self._sessions.fetch(self._sql.secrets, tenant)]

    async def sealed_for(self, keys: Collection[EndpointKey], now_ms: int) -> Mapping[EndpointKey, tuple[bytes, ...]]:
        rows = await self._sessions.fetch(self._sql.secrets_for, as_json(_named(keys)))
        return to_sign_with([_secret(row) for row in rows], keys, now_ms)

    async def find(self, key: EndpointKey) -> EndpointRow | None:
        row = await self._sessions.row(self._sql.endpoint, *key)
        return None if row is None else row_of(row)

    async def list_endpoints(self, tenant: TenantId, after: str | None, limit: int) -> list[EndpointRow]:
        return [row_of(row) for row in await self._sessions.fetch(self._sql.endpoints, tenant, after or "", limit)]

    async def put(self, key: EndpointKey, settings: EndpointSettings, now_ms: int, audit: AuditEntry) -> EndpointRow:
        async def work(session: SqlSession) -> EndpointRow:
            await session.execute(self._sql.put_settings, *key, as_json(settings), now_ms)
            await self._audit.add(session, audit)
            (row,) = await session.fetch(self._sql.endpoint, *key)
            return row_of(row)

        return await self._sessions.write(work)

    async def limits_of(self, keys: Collection[EndpointKey]) -> Mapping[EndpointKey, EndpointLimits]:
        return limits_in(await self._sessions.fetch(self._sql.settings_of, as_json(_named(keys))))

    async def note_calls(
        self, succeeded: Collection[EndpointKey], failed: Mapping[EndpointKey, Failures], now_ms: int
    ) -> None:
        # All writers use the same order, so that no two of them wait for each other.
        successes = _named(sorted(succeeded))
        failures = [
            {"tenant": tenant, "endpoint": endpoint, **msgspec.structs.asdict(failed[tenant, endpoint])}
            for tenant, endpoint in sorted(failed)
        ]

        async def work(session: SqlSession) -> None:
            if successes:
                await session.execute(self._sql.note_successes, as_json(successes), now_ms)
            if failures:
                await session.execute(self._sql.note_failures, as_json(failures), now_ms, QUIET_MS)

        await self._sessions.write(work)

    async def failing_too_long(self, now_ms: int, limit: int) -> list[EndpointRow]:
        parameters = (now_ms, LEAST_FAILURES, DISABLE_AFTER_DAYS, limit)
        return [row_of(row) for row in await self._sessions.fetch(self._sql.failing_too_long, *parameters)]

    async def disable(
        self, key: EndpointKey, why: str, now_ms: int, audit: AuditEntry, *, failing_since_ms: int | None = None
    ) -> bool:
        tenant, endpoint = key

        async def work(session: SqlSession) -> bool:
            if await session.row(self._sql.disable, *key, why, now_ms, failing_since_ms) is None:
                return False
            await session.execute(self._sql.add_incident, tenant, f"{endpoint} {why}", now_ms)
            await self._audit.add(session, audit)
            return True

        return await self._sessions.write(work)

    async def enable(self, key: EndpointKey, now_ms: int, audit: AuditEntry) -> bool:
        async def work(session: SqlSession) -> bool:
            if await session.row(self._sql.enable, *key, now_ms) is None:
                return False
            await self._audit.add(session, audit)
            return True

        return await self._sessions.write(work)

    async def unsettled(self, limit: int) -> list[tuple[EndpointRow, int]]:
        return [(row_of(row), row["unsettled_ms"]) for row in await self._sessions.fetch(self._sql.unsettled, limit)]

    async def settled(self, key: EndpointKey, since_ms: int) -> None:
        await self._sessions.write(lambda session: session.execute(self._sql.settled, *key, since_ms))

    async def tasks_to_halt(self, key: EndpointKey, after: JobId | None, limit: int) -> list[JobId]:
        rows = await self._sessions.fetch(self._sql.tasks_to_halt, *key, after or FIRST_ID, limit)
        return [row["id"] for row in rows]

    async def tasks_to_resume(self, key: EndpointKey, halted: str, after: JobId | None, limit: int) -> list[JobId]:
        rows = await self._sessions.fetch(self._sql.tasks_to_resume, *key, after or FIRST_ID, limit, halted)
        return [row["id"] for row in rows]

    async def forget(self, unused_since_ms: int, limit: int) -> int:
        rows = await self._sessions.write(lambda session: session.fetch(self._sql.forget, unused_since_ms, limit))
        return len(rows)


def _named(keys: Iterable[EndpointKey]) -> list[dict[str, Any]]:
    return [{"tenant": tenant, "endpoint": endpoint} for tenant, endpoint in keys]


def _secret(row: Row) -> Secret:
    return Secret(**{**row, "kind": SecretKind(row["kind"])})
