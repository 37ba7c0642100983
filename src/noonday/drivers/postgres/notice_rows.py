"""Store preferences and notices in PostgreSQL."""

from collections.abc import Collection, Sequence

from noonday.drivers.postgres.connection import PostgresDatabase, Session
from noonday.drivers.postgres.jobs import add_audit, keep_receipt
from noonday.drivers.sql.named_sql import load
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.notice import Digest, Note, Open, Preference
from noonday.model.notice_rows import digest_of, gathered, preference_of, row_of
from noonday.model.receipt import Receipt
from noonday.ports.notices import Notices
from noonday.transitions.write_set import as_json

SQL = load("noonday.drivers.postgres", "notice_rows")


class PostgresNotices(Notices):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put_preference(
        self, preference: Preference, most: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        async with self._database.transaction() as session:
            if await session.fetchval(SQL.count_others, preference.tenant, preference.id) >= most:
                return False
            await session.execute(SQL.put_preference, *row_of(preference))
            await _add_audit_and_receipt(session, audit, receipt)
        return True

    async def delete_preference(
        self, tenant: TenantId, preference: str, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        async with self._database.transaction() as session:
            if await session.fetchval(SQL.delete_preference, tenant, preference) is None:
                return False
            for row in await session.fetch(SQL.notices_of, tenant, preference):
                await _drop(session, row["id"])
            await _add_audit_and_receipt(session, audit, receipt)
        return True

    async def find_preference(self, tenant: TenantId, preference: str) -> Preference | None:
        row = await self._database.row(SQL.find_preference, tenant, preference)
        return preference_of(row) if row else None

    async def preferences(self, tenants: Collection[str]) -> list[Preference]:
        return [preference_of(row) for row in await self._database.fetch(SQL.preferences, sorted(tenants))]

    async def take_in(self, events: Sequence[int], notes: Sequence[Note], notices: Sequence[Open]) -> int:
        async with self._database.transaction() as session:
            taken = {row["id"] for row in await session.fetch(SQL.take_alert_events, list(events))}
            opening, lines = gathered(notes, notices, taken)
            if opening:
                columns = ([getattr(each, name) for each in opening] for name in Open.__struct_fields__)
                rows = await session.fetch(SQL.open_notices, *columns)
                names = {(row["tenant"], row["preference"]): row["id"] for row in rows}
                # All writers add lines in the order of notice, subject and kind, so that no two of them wait for each other.
                rows_to_add = sorted([(names[whose], *line) for whose, line in lines], key=lambda row: row[:3])
                await session.execute(SQL.add_lines, as_json(rows_to_add))
            return len(taken)

    async def close_due(self, now_ms: int, limit: int) -> list[Open]:
        async with self._database.session() as session:
            await session.execute(SQL.close_due, now_ms, limit)
            return [Open(*row) for row in await session.fetch(SQL.closed, limit)]

    async def next_due_ms(self) -> int | None:
        due_ms: int | None = await self._database.value(SQL.next_due)
        return due_ms

    async def digest(self, notice: Open, subjects: int) -> Digest:
        counted = await self._database.fetch(SQL.counted, notice.id)
        if not counted:
            return Digest(notice.id, notice.tenant, notice.preference)
        all_subjects = await self._database.value(SQL.count_subjects, notice.id)
        return digest_of(notice, counted, all_subjects, await self._database.fetch(SQL.lines, notice.id, subjects))

    async def drop(self, notice: str) -> None:
        async with self._database.transaction() as session:
            await _drop(session, notice)


async def _drop(session: Session, notice: str) -> None:
    await session.execute(SQL.drop_lines, notice)
    await session.execute(SQL.drop_notice, notice)


async def _add_audit_and_receipt(session: Session, audit: AuditEntry, receipt: Receipt | None) -> None:
    await add_audit(session, audit)
    if receipt:
        await keep_receipt(session, receipt)
