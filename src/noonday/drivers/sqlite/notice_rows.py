"""Store preferences and notices in SQLite."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import astuple

from noonday.drivers.sql.named_sql import load
from noonday.drivers.sqlite.connection import SqliteDatabase
from noonday.drivers.sqlite.jobs import add_audit, keep_receipt
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.notice import Digest, Note, Open, Preference
from noonday.model.notice_rows import digest_of, gathered, preference_of, row_of
from noonday.model.receipt import Receipt
from noonday.ports.notices import Notices
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.sqlite", "notice_rows")


class SqliteNotices(Notices):
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    async def put_preference(
        self, preference: Preference, most: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        def work(conn: sqlite3.Connection) -> bool:
            (others,) = conn.execute(SQL.count_others, (preference.tenant, preference.id)).fetchone()
            if others >= most:
                return False
            conn.execute(SQL.put_preference, row_of(preference))
            _add_audit_and_receipt(conn, audit, receipt)
            return True

        return await self._database.write(work)

    async def delete_preference(
        self, tenant: TenantId, preference: str, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        def work(conn: sqlite3.Connection) -> bool:
            if conn.execute(SQL.delete_preference, (tenant, preference)).fetchone() is None:
                return False
            for (notice,) in conn.execute(SQL.notices_of, (tenant, preference)).fetchall():
                _drop(conn, notice)
            _add_audit_and_receipt(conn, audit, receipt)
            return True

        return await self._database.write(work)

    async def find_preference(self, tenant: TenantId, preference: str) -> Preference | None:
        rows = await self._rows(SQL.find_preference, tenant, preference)
        return preference_of(rows[0]) if rows else None

    async def preferences(self, tenants: Collection[str]) -> list[Preference]:
        return [preference_of(row) for row in await self._rows(SQL.preferences, as_json(sorted(tenants)))]

    async def take_in(self, events: Sequence[int], notes: Sequence[Note], notices: Sequence[Open]) -> int:
        def work(conn: sqlite3.Connection) -> int:
            taken = {row[0] for row in conn.execute(SQL.take_alert_events, (as_json(events),)).fetchall()}
            opening, lines = gathered(notes, notices, taken)
            if opening:
                rows = conn.execute(SQL.open_notices, (as_json([astuple(each) for each in opening]),)).fetchall()
                names = {(tenant, preference): notice for notice, tenant, preference in rows}
                conn.execute(SQL.add_lines, (as_json([(names[whose], *line) for whose, line in lines]),))
            return len(taken)

        return await self._database.write(work)

    async def close_due(self, now_ms: int, limit: int) -> list[Open]:
        due_ms = await self.next_due_ms()
        if (due_ms is None or due_ms > now_ms) and not await self._rows(SQL.closed, 1):
            return []  # Nearly always; then nothing is written.

        def work(conn: sqlite3.Connection) -> list[Any]:
            conn.execute(SQL.close_due, (now_ms, limit))
            return conn.execute(SQL.closed, (limit,)).fetchall()

        return [Open(*row) for row in await self._database.write(work)]

    async def next_due_ms(self) -> int | None:
        ((due_ms,),) = await self._rows(SQL.next_due)
        return due_ms  # type: ignore[no-any-return]

    async def digest(self, notice: Open, subjects: int) -> Digest:
        def work(conn: sqlite3.Connection) -> Digest:
            counted = conn.execute(SQL.counted, (notice.id,)).fetchall()
            if not counted:
                return Digest(notice.id, notice.tenant, notice.preference)
            (all_subjects,) = conn.execute(SQL.count_subjects, (notice.id,)).fetchone()
            return digest_of(notice, counted, all_subjects, conn.execute(SQL.lines, (notice.id, subjects)).fetchall())

        return await self._database.read(work)

    async def drop(self, notice: str) -> None:
        await self._database.write(lambda conn: _drop(conn, notice))

    async def _rows(self, query: str, *parameters: Any) -> list[Any]:
        rows: list[Any] = await self._database.read(lambda conn: conn.execute(query, parameters).fetchall())
        return rows


def _drop(conn: sqlite3.Connection, notice: str) -> None:
    conn.execute(SQL.drop_lines, (notice,))
    conn.execute(SQL.drop_notice, (notice,))


def _add_audit_and_receipt(conn: sqlite3.Connection, audit: AuditEntry, receipt: Receipt | None) -> None:
    add_audit(conn, audit)
    if receipt:
        keep_receipt(conn, receipt)
