"""/v1/tenants: what a tenant may use."""

from noonday.api.call import Call
from noonday.api.routing import Route, TenantName
from noonday.model.view import TenantSettings, TenantView


async def get_tenant(call: Call, tenant_id: TenantName) -> TenantView:
    """Show a tenant's settings: one's own, or any with the scope admin."""
    return await call.reading.get_tenant(call.caller, tenant_id)


async def put_tenant(call: Call, tenant_id: TenantName, body: TenantSettings) -> TenantView:
    """Replace a tenant's settings."""
    return await call.desk.put_tenant(call.caller, tenant_id, body, call.idem)


ROUTES = (
    Route("GET", "/v1/tenants/{tenantId}", get_tenant, scope="read"),
    Route("PUT", "/v1/tenants/{tenantId}", put_tenant, scope="admin"),
)
