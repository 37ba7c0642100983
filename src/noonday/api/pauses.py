"""/v1/pauses: what is held, whole tenants and pools at a time."""

from noonday.api.call import Call
from noonday.api.routing import PoolName, Route, TenantName
from noonday.model.view import PauseList


async def list_pauses(call: Call) -> PauseList:
    """List what is held: tenants, pools, or everything."""
    return await call.reading.pauses(call.caller)


async def pause_tenant(call: Call, tenant_id: TenantName) -> PauseList:
    """Pause a tenant: one's own, or any with the scope operator. Jobs are still accepted."""
    return await call.desk.hold(call.caller, "TENANT", tenant_id, call.idem)


async def resume_tenant(call: Call, tenant_id: TenantName) -> PauseList:
    """Resume a tenant: one's own, or any with the scope operator."""
    return await call.desk.let_go(call.caller, "TENANT", tenant_id, call.idem)


async def pause_pool(call: Call, name: PoolName) -> PauseList:
    """Hold what is due for a pool. Jobs are still accepted."""
    return await call.desk.hold(call.caller, "POOL", name, call.idem)


async def resume_pool(call: Call, name: PoolName) -> PauseList:
    """Let go what was held for a pool, as fast as the pool takes it."""
    return await call.desk.let_go(call.caller, "POOL", name, call.idem)


async def pause_all(call: Call) -> PauseList:
    """Hold everything. Jobs are still accepted, and what runs goes on."""
    return await call.desk.hold(call.caller, "ALL", "", call.idem)


async def resume_all(call: Call) -> PauseList:
    """Let go what was held when everything was. Tenants and pools that are held by name stay so."""
    return await call.desk.let_go(call.caller, "ALL", "", call.idem)


ROUTES = (
    Route("GET", "/v1/pauses", list_pauses, scope="read"),
    Route("POST", "/v1/pause", pause_all, scope="operator"),
    Route("POST", "/v1/resume", resume_all, scope="operator"),
    Route("POST", "/v1/pools/{name}/pause", pause_pool, scope="operator"),
    Route("POST", "/v1/pools/{name}/resume", resume_pool, scope="operator"),
    Route("POST", "/v1/tenants/{tenantId}/pause", pause_tenant, scope="admin"),
    Route("POST", "/v1/tenants/{tenantId}/resume", resume_tenant, scope="admin"),
)
