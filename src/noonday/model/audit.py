"""Audit log entries."""

import msgspec

from noonday.model.ids import TenantId

EVERY_TENANT = TenantId("")
"""The tenant of an audit entry that concerns all tenants."""


class AuditEntry(msgspec.Struct, frozen=True):
    """One action of a user or operator, for the audit log."""

    tenant: TenantId
    """The tenant that the action concerns. The subject may belong to another tenant."""
    at_ms: int
    subject: str
    action: str
    target: str
    detail: dict[str, object] = {}
