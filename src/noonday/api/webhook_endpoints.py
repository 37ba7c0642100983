"""/v1/webhook-endpoints: limits and health of the endpoints that tasks call."""

from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import Query
from noonday.api.routing import PageSize, Route
from noonday.model.endpoint import ID_PATTERN, EndpointSettings
from noonday.model.endpoint_view import EndpointPage, EndpointView

EndpointId = Annotated[
    str,
    msgspec.Meta(pattern=ID_PATTERN, description="`ep_` and the unpadded base64url of `https://host:port`"),
]


class EndpointQuery(Query, frozen=True):
    cursor: EndpointId | None = None
    limit: PageSize = 50


async def list_endpoints(context: RequestContext, query: EndpointQuery) -> EndpointPage:
    """List the endpoints that were called or have settings, ordered by name, in pages."""
    return await context.tasks.endpoints.list_endpoints(context.caller, cursor=query.cursor, limit=query.limit)


async def get_endpoint(context: RequestContext, endpoint_id: EndpointId) -> EndpointView:
    """Get the settings and health of an endpoint."""
    return await context.tasks.endpoints.get(context.caller, endpoint_id)


async def put_endpoint(context: RequestContext, endpoint_id: EndpointId, body: EndpointSettings) -> EndpointView:
    """Set the limits of an endpoint, and when it is disabled.

    Replaces all settings: omitted fields get their defaults. Dispatches follow the new settings within 2 seconds.
    """
    return await context.tasks.endpoints.put(context.caller, endpoint_id, body, context.idem)


async def enable_endpoint(context: RequestContext, endpoint_id: EndpointId) -> EndpointView:
    """Enable an endpoint. Tasks that stopped because it was disabled resume."""
    return await context.tasks.endpoints.enable(context.caller, endpoint_id, context.idem)


async def disable_endpoint(context: RequestContext, endpoint_id: EndpointId) -> EndpointView:
    """Disable an endpoint. Its tasks stop, and new ones are rejected."""
    return await context.tasks.endpoints.disable(context.caller, endpoint_id, context.idem)


_ONE = "/v1/webhook-endpoints/{endpoint_id}"
ROUTES = (
    Route("GET", "/v1/webhook-endpoints", list_endpoints, scope="read"),
    Route("GET", _ONE, get_endpoint, scope="read"),
    Route("PUT", _ONE, put_endpoint, scope="write", needs_key=True),
    Route("POST", f"{_ONE}/enable", enable_endpoint, scope="write", needs_key=True),
    Route("POST", f"{_ONE}/disable", disable_endpoint, scope="write", needs_key=True),
)
