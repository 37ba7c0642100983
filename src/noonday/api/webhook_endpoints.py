"""/v1/webhook-endpoints: those whom tasks call, how fast they may be called, and how they are doing."""

from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.query import Query
from noonday.api.routing import PageSize, Route
from noonday.model.endpoint import ID_PATTERN, EndpointSettings
from noonday.tasks.endpoints import EndpointPage, EndpointView

EndpointId = Annotated[
    str,
    msgspec.Meta(pattern=ID_PATTERN, description="`ep_` and the base64url of `https://host:port`, without padding"),
]


class EndpointQuery(Query, frozen=True):
    cursor: EndpointId | None = None
    limit: PageSize = 50


async def list_endpoints(call: Call, query: EndpointQuery) -> EndpointPage:
    """List the endpoints that were called or have settings, by name, in pages."""
    return await call.tasks.endpoints.list_endpoints(call.caller, cursor=query.cursor, limit=query.limit)


async def get_endpoint(call: Call, endpoint_id: EndpointId) -> EndpointView:
    """Show an endpoint: what is set for it, and how it is doing."""
    return await call.tasks.endpoints.get(call.caller, endpoint_id)


async def put_endpoint(call: Call, endpoint_id: EndpointId, body: EndpointSettings) -> EndpointView:
    """Set how fast an endpoint may be called, and when it is disabled.

    All is replaced: what is not said is as if it had never been set. Calls that are handed out two seconds later keep to it.
    """
    return await call.tasks.endpoints.put(call.caller, endpoint_id, body, call.idem)


async def enable_endpoint(call: Call, endpoint_id: EndpointId) -> EndpointView:
    """Enable an endpoint: tasks that were stopped because it was disabled go on."""
    return await call.tasks.endpoints.enable(call.caller, endpoint_id, call.idem)


async def disable_endpoint(call: Call, endpoint_id: EndpointId) -> EndpointView:
    """Disable an endpoint: its tasks are stopped, and new ones are refused."""
    return await call.tasks.endpoints.disable(call.caller, endpoint_id, call.idem)


_ONE = "/v1/webhook-endpoints/{endpoint_id}"
ROUTES = (
    Route("GET", "/v1/webhook-endpoints", list_endpoints, scope="read"),
    Route("GET", _ONE, get_endpoint, scope="read"),
    Route("PUT", _ONE, put_endpoint, scope="write", needs_key=True),
    Route("POST", f"{_ONE}/enable", enable_endpoint, scope="write", needs_key=True),
    Route("POST", f"{_ONE}/disable", disable_endpoint, scope="write", needs_key=True),
)
