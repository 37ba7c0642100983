"""/v1/pools: named worker capacity."""

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import ScopeQuery
from noonday.api.routing import PoolName, Route
from noonday.model.view import PoolSettings, PoolView


class PoolList(msgspec.Struct, frozen=True):
    pools: list[PoolView]


async def list_pools(context: RequestContext, query: ScopeQuery) -> PoolList:
    """List the pools with their handlers, workers and the tenant's backlog.

    With `scope=all` (operators), the backlog of all tenants.
    """
    return PoolList(await context.intake.pools.list_pools(context.caller, all_tenants=query.scope == "all"))


async def get_pool(context: RequestContext, name: PoolName, query: ScopeQuery) -> PoolView:
    """Get a pool with the tenant's backlog.

    With `scope=all` (operators), the backlog of all tenants.
    """
    return await context.intake.pools.get(context.caller, name, all_tenants=query.scope == "all")


async def put_pool(context: RequestContext, name: PoolName, body: PoolSettings) -> PoolView:
    """Create a pool, or replace its settings. Settings of jobs and handlers take precedence."""
    return await context.intake.pools.put(context.caller, name, body, context.idem)


ROUTES = (
    Route("GET", "/v1/pools", list_pools, scope="read"),
    Route("GET", "/v1/pools/{name}", get_pool, scope="read"),
    Route("PUT", "/v1/pools/{name}", put_pool, scope="operator"),
)
