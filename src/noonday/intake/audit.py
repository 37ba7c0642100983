"""Audit log: the entries that commands write, and the query that lists them."""

from collections.abc import Mapping

from noonday.model.audit import AuditEntry
from noonday.model.caller import Caller
from noonday.model.errors import InvalidInput
from noonday.model.ids import TenantId
from noonday.model.job import instant_of
from noonday.model.view import AuditPage, AuditView
from noonday.ports.settings import SettingsStore

SYSTEM_SUBJECT = "noonday"
"""Subject of audit entries that no user caused at the time."""


def audit_entry(
    caller: Caller,
    action: str,
    target: str,
    at_ms: int,
    detail: Mapping[str, object] | None = None,
    *,
    tenant: TenantId | None = None,
) -> AuditEntry:
    """Build an entry for the audit log of a tenant, by default the caller's. For another tenant it names the caller's."""
    concerned = caller.tenant if tenant is None else tenant
    by: dict[str, str] = {} if caller.tenant == concerned else {"byTenant": caller.tenant}
    if caller.operation is not None:
        by["operationId"] = caller.operation
    return AuditEntry(concerned, at_ms, caller.subject, action, target, {**(detail or {}), **by})


class AuditQueries:
    """Queries of the audit log."""

    def __init__(self, settings_store: SettingsStore) -> None:
        self._settings_store = settings_store

    async def list_entries(
        self,
        caller: Caller,
        *,
        target: str | None = None,
        subject: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AuditPage:
        """List the entries of the caller's tenant, newest first. Raises InvalidInput for a malformed cursor."""
        after = _position(cursor)
        rows = await self._settings_store.list_audit(
            caller.tenant, target=target, subject=subject, after=after, limit=limit + 1
        )
        views = tuple(_view(entry) for _, entry in rows[:limit])
        return AuditPage(entries=views, next=str(rows[limit - 1][0]) if len(rows) > limit else None)


def _position(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidInput.of("/cursor", "not a cursor of this list: use `next` of its previous page", cursor)
    return int(cursor)


def _view(entry: AuditEntry) -> AuditView:
    return AuditView(
        at=instant_of(entry.at_ms),
        subject=entry.subject,
        action=entry.action,
        target=entry.target,
        detail=entry.detail,
    )
