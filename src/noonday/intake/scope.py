"""Scope of figures: one tenant or all."""

from noonday.model.caller import Caller
from noonday.model.ids import TenantId


def tenant_in_scope(caller: Caller, all_tenants: bool) -> TenantId | None:
    """Return the tenant of the requested figures, or None for all tenants. Raises Forbidden."""
    if not all_tenants:
        return caller.tenant
    caller.require("operator")
    return None
