"""Add audit entries and receipts in the transaction of the command that they belong to."""

from noonday.drivers.sql.sessions import SqlSession, SqlSessions
from noonday.model.audit import AuditEntry
from noonday.model.errors import Conflict
from noonday.model.receipt import Receipt
from noonday.transitions.write_set import as_json


class AuditLog:
    def __init__(self, sessions: SqlSessions) -> None:
        self._sql = sessions.statements("audit")

    async def add(self, session: SqlSession, entry: AuditEntry | None, receipt: Receipt | None = None) -> None:
        """Add the entry and the receipt that are given. Raises Conflict if the key of the receipt is taken."""
        if entry:
            await session.execute(self._sql.add_audit, *audit_columns(entry))
        statement = self._sql.add_receipt
        if receipt and await session.row(statement, *self._sql.values(statement, receipt)) is None:
            raise Conflict("another request with this Idempotency-Key was answered in the meantime")


def audit_columns(entry: AuditEntry) -> tuple[str | int, ...]:
    return entry.tenant, entry.at_ms, entry.subject, entry.action, entry.target, as_json(entry.detail)
