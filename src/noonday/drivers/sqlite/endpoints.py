"""Store the secrets, settings and health of endpoints in SQLite."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping

import msgspec

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.jobs import add_audit, keep_receipt
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

SQL = load("noonday.drivers.sqlite", "endpoints")
SHOWN_MS = 30 * 86_400_000
"""How long a secret is listed after its end, in ms."""


class SqliteEndpoints(Endpoints):
    def __init__(self, database: SqliteDatabase) -> None:
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

    async def sealed_for(self, whom: Collection[EndpointKey], now_ms: int) -> Mapping[EndpointKey, tuple[bytes, ...]]:
        return to_sign_with(await self._read(SQL.secrets_for, as_json(list(whom))), whom, now_ms)

    async def find(self, whom: EndpointKey) -> EndpointRow | None:
        rows = await self._rows(SQL.endpoint, *whom)
        return row_of(rows[0]) if rows else None

    async def list_endpoints(self, tenant: TenantId, after: str | None, limit: int) -> list[EndpointRow]:
        return [row_of(row) for row in await self._rows(SQL.endpoints, tenant, after or "", limit)]

    async def put(self, whom: EndpointKey, settings: EndpointSettings, now_ms: int, audit: AuditEntry) -> EndpointRow:
        def work(conn: sqlite3.Connection) -> EndpointRow:
            conn.execute(SQL.put_settings, (*whom, as_json(settings), now_ms))
            add_audit(conn, audit)
            return row_of(conn.execute(SQL.endpoint, whom).fetchone())

        return await self._database.write(work)

    async def limits_of(self, whom: Collection[EndpointKey]) -> Mapping[EndpointKey, EndpointLimits]:
        return limits_in(await self._rows(SQL.settings_of, as_json(list(whom))))

    async def note_calls(
        self, succeeded: Collection[EndpointKey], failed: Mapping[EndpointKey, Failures], now_ms: int
    ) -> None:
        failures = [(*whom, each.count, each.error) for whom, each in failed.items()]

        def work(conn: sqlite3.Connection) -> None:
            if succeeded:
                conn.execute(SQL.note_successes, (as_json(list(succeeded)), now_ms))
            if failures:
                conn.execute(SQL.note_failures, (as_json(failures), now_ms, QUIET_MS))

        await self._database.write(work)

    async def hopeless(self, now_ms: int, limit: int) -> list[EndpointRow]:
        rows = await self._rows(SQL.hopeless, now_ms, LEAST_FAILURES, DISABLE_AFTER_DAYS, limit)
        return [row_of(row) for row in rows]

    async def disable(
        self, whom: EndpointKey, why: str, now_ms: int, audit: AuditEntry, *, failing_since_ms: int | None = None
    ) -> bool:
        def work(conn: sqlite3.Connection) -> bool:
            if not conn.execute(SQL.disable, (*whom, why, now_ms, failing_since_ms)).fetchall():
                return False
            conn.execute(SQL.add_incident, (whom[0], f"{whom[1]} {why}", now_ms))
            add_audit(conn, audit)
            return True

        return await self._database.write(work)

    async def enable(self, whom: EndpointKey, now_ms: int, audit: AuditEntry) -> bool:
        def work(conn: sqlite3.Connection) -> bool:
            if not conn.execute(SQL.enable, (*whom, now_ms)).fetchall():
                return False
            add_audit(conn, audit)
            return True

        return await self._database.write(work)

    async def unsettled(self, limit: int) -> list[tuple[EndpointRow, int]]:
        return [(row_of(row[:-1]), row[-1]) for row in await self._rows(SQL.unsettled, limit)]

    async def settled(self, whom: EndpointKey, since_ms: int) -> None:
        await self._database.write(lambda conn: conn.execute(SQL.settled, (*whom, since_ms)))

    async def tasks_to_halt(self, whom: EndpointKey, after: JobId | None, limit: int) -> list[JobId]:
        return [row[0] for row in await self._rows(SQL.tasks_to_halt, *whom, after or "", limit)]

    async def tasks_to_resume(self, whom: EndpointKey, halted: str, after: JobId | None, limit: int) -> list[JobId]:
        return [row[0] for row in await self._rows(SQL.tasks_to_resume, *whom, after or "", limit, halted)]

    async def forget(self, unused_since_ms: int, limit: int) -> int:
        return await self._database.write(lambda conn: conn.execute(SQL.forget, (unused_since_ms, limit)).rowcount)

    async def _rows(self, query: str, *parameters: str | int | float) -> list[sqlite3.Row]:
        return await self._database.read(lambda conn: conn.execute(query, parameters).fetchall())

    async def _read(self, query: str, parameter: str) -> list[Secret]:
        rows: Iterable[sqlite3.Row] = await self._database.read(
            lambda conn: conn.execute(query, (parameter,)).fetchall()
        )
        return [_secret(row) for row in rows]


def _secret(row: sqlite3.Row) -> Secret:
    tenant, name, endpoint, kind, *rest = row
    return Secret(tenant, name, endpoint, SecretKind(kind), *rest)
