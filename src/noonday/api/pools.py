"""/v1/pools: named worker capacity."""

import msgspec

from noonday.api.call import Call
from noonday.api.query import FiguresOf
from noonday.api.routing import PoolName, Route
from noonday.model.view import PoolSettings, PoolView


class PoolList(msgspec.Struct, frozen=True):
    pools: list[PoolView]


async def list_pools(call: Call, query: FiguresOf) -> PoolList:
    """List the pools with their handlers, their workers, and the tenant's backlog.

    With `scope=all` the backlog of all tenants, for operators.
    """
    return PoolList(await call.reading.pools(call.caller, all_tenants=query.scope == "all"))


async def get_pool(call: Call, name: PoolName, query: FiguresOf) -> PoolView:
    """Show a pool, with the tenant's backlog.

    With `scope=all` the backlog of all tenants, for operators.
    """
    return await call.reading.get_pool(call.caller, name, all_tenants=query.scope == "all")


async def put_pool(call: Call, name: PoolName, body: PoolSettings) -> PoolView:
    """Create a pool, or replace its settings. Jobs and handlers that say otherwise win over them."""
    return await call.desk.put_pool(call.caller, name, body, call.idem)


ROUTES = (
    Route("GET", "/v1/pools", list_pools, scope="read"),
    Route("GET", "/v1/pools/{name}", get_pool, scope="read"),
    Route("PUT", "/v1/pools/{name}", put_pool, scope="operator"),
)
