"""Store preferences and notices in a SQL database."""

from collections.abc import Collection, Sequence

import msgspec

from noonday.drivers.sql.audit import AuditLog
from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.audit import AuditEntry
from noonday.model.ids import TenantId
from noonday.model.notice import Digest, DigestItem, OpenNotice, Preference, SelectedEvent
from noonday.model.notice_rows import PreferenceKey, digest_of, items_to_add, preference_of, row_of
from noonday.model.receipt import Receipt
from noonday.ports.notices import Notices
from noonday.transitions.write_set import as_json


class SqlNotices(Notices):
    def __init__(self, sessions: SqlSessions) -> None:
        self._sessions = sessions
        self._sql = sessions.statements("notices")
        self._audit = AuditLog(sessions)

    async def put_preference(
        self, preference: Preference, most: int, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        async def work(session: SqlSession) -> bool:
            if await session.value(self._sql.count_others, preference.tenant, preference.id) >= most:
                return False
            await session.execute(self._sql.put_preference, *row_of(preference))
            await self._audit.add(session, audit, receipt)
            return True

        return await self._sessions.write(work)

    async def delete_preference(
        self, tenant: TenantId, preference: str, audit: AuditEntry, receipt: Receipt | None = None
    ) -> bool:
        async def work(session: SqlSession) -> bool:
            if await session.row(self._sql.delete_preference, tenant, preference) is None:
                return False
            for row in await session.fetch(self._sql.notices_of, tenant, preference):
                await self._drop(session, row["id"])
            await self._audit.add(session, audit, receipt)
            return True

        return await self._sessions.write(work)

    async def find_preference(self, tenant: TenantId, preference: str) -> Preference | None:
        row = await self._sessions.row(self._sql.find_preference, tenant, preference)
        return None if row is None else preference_of(row)

    async def preferences(self, tenants: Collection[str]) -> list[Preference]:
        return [preference_of(row) for row in await self._sessions.fetch(self._sql.preferences, sorted(tenants))]

    async def collect(
        self, events: Sequence[int], selected: Sequence[SelectedEvent], notices: Sequence[OpenNotice]
    ) -> int:
        async def work(session: SqlSession) -> int:
            taken = {row["id"] for row in await session.fetch(self._sql.take_alert_events, list(events))}
            opening, lines = items_to_add(selected, notices, taken)
            if opening:
                await self._add_lines(session, opening, lines)
            return len(taken)

        return await self._sessions.write(work)

    async def close_due(self, now_ms: int, limit: int) -> list[OpenNotice]:
        async def is_any_due(session: SqlSession) -> bool:
            due_ms = await session.value(self._sql.next_due)
            return (due_ms is not None and due_ms <= now_ms) or bool(await session.fetch(self._sql.closed, 1))

        async def close(session: SqlSession) -> list[OpenNotice]:
            await session.execute(self._sql.close_due, now_ms, limit)
            return [OpenNotice(**row) for row in await session.fetch(self._sql.closed, limit)]

        # Nearly always nothing is due, and then nothing is written.
        return await self._sessions.write(close) if await self._sessions.read(is_any_due) else []

    async def next_due_ms(self) -> int | None:
        due_ms: int | None = await self._sessions.value(self._sql.next_due)
        return due_ms

    async def digest(self, notice: OpenNotice, subjects: int) -> Digest:
        async def work(session: SqlSession) -> Digest:
            counted = await session.fetch(self._sql.counted, notice.id)
            if not counted:
                return Digest(notice.id, notice.tenant, notice.preference)
            all_subjects = await session.value(self._sql.count_subjects, notice.id)
            return digest_of(notice, counted, all_subjects, await session.fetch(self._sql.lines, notice.id, subjects))

        return await self._sessions.read(work)

    async def drop(self, notice: str) -> None:
        await self._sessions.write(lambda session: self._drop(session, notice))

    async def _add_lines(
        self, session: SqlSession, opening: Sequence[OpenNotice], lines: Sequence[tuple[PreferenceKey, DigestItem]]
    ) -> None:
        rows = await session.fetch(self._sql.open_notices, as_json(opening))
        names = {(row["tenant"], row["preference"]): row["id"] for row in rows}
        # All writers add lines in the order of notice, subject and kind, so that no two of them wait for each other.
        adding = [{"notice_id": names[key], **msgspec.structs.asdict(line)} for key, line in lines]
        adding.sort(key=lambda line: (line["notice_id"], line["about"], line["kind"]))
        await session.execute(self._sql.add_lines, as_json(adding))

    async def _drop(self, session: SqlSession, notice: str) -> None:
        await session.execute(self._sql.drop_lines, notice)
        await session.execute(self._sql.drop_notice, notice)
