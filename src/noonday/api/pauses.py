"""/v1/pauses: pauses of tenants, pools, or everything."""

from noonday.api.context import RequestContext
from noonday.api.routing import PoolName, Route, TenantName
from noonday.model.view import PauseList


async def list_pauses(context: RequestContext) -> PauseList:
    """List the pauses of tenants, of pools, and of everything."""
    return await context.intake.pauses.list_pauses(context.caller)


async def pause_tenant(context: RequestContext, tenant_id: TenantName) -> PauseList:
    """Pause the caller's tenant, or any tenant with scope operator. Jobs are still accepted."""
    return await context.intake.pauses.add(context.caller, "TENANT", tenant_id, context.idem)


async def resume_tenant(context: RequestContext, tenant_id: TenantName) -> PauseList:
    """Resume the caller's tenant, or any tenant with scope operator."""
    return await context.intake.pauses.remove(context.caller, "TENANT", tenant_id, context.idem)


async def pause_pool(context: RequestContext, name: PoolName) -> PauseList:
    """Pause a pool. Jobs are still accepted."""
    return await context.intake.pauses.add(context.caller, "POOL", name, context.idem)


async def resume_pool(context: RequestContext, name: PoolName) -> PauseList:
    """Resume a pool. Due work starts as capacity allows."""
    return await context.intake.pauses.remove(context.caller, "POOL", name, context.idem)


async def pause_all(context: RequestContext) -> PauseList:
    """Pause everything. Jobs are still accepted, and running executions continue."""
    return await context.intake.pauses.add(context.caller, "ALL", "", context.idem)


async def resume_all(context: RequestContext) -> PauseList:
    """End the pause of everything. Tenants and pools that are paused by name stay paused."""
    return await context.intake.pauses.remove(context.caller, "ALL", "", context.idem)


ROUTES = (
    Route("GET", "/v1/pauses", list_pauses, scope="read"),
    Route("POST", "/v1/pause", pause_all, scope="operator"),
    Route("POST", "/v1/resume", resume_all, scope="operator"),
    Route("POST", "/v1/pools/{name}/pause", pause_pool, scope="operator"),
    Route("POST", "/v1/pools/{name}/resume", resume_pool, scope="operator"),
    Route("POST", "/v1/tenants/{tenantId}/pause", pause_tenant, scope="admin"),
    Route("POST", "/v1/tenants/{tenantId}/resume", resume_tenant, scope="admin"),
)
