"""The REST API as an ASGI application."""

from functools import cache

from starlette.applications import Starlette
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from noonday.api import (
    alert_preferences,
    audit,
    batch,
    bulk_operations,
    dead_letters,
    dead_tasks,
    docs_page,
    executions,
    executions_of_tasks,
    health,
    jobs,
    notifications,
    occurrences,
    pauses,
    pools,
    proof,
    providers,
    remote_workers,
    schedules,
    tenants,
    users,
    webhook_endpoints,
    webhook_secrets,
    workers,
)
from noonday.api import alerts as alert_routes
from noonday.api import tasks as task_routes
from noonday.api.context import ApiServices, Health, RequestContext
from noonday.api.errors import UnknownRoute, instance_of, reply_of
from noonday.api.hosts import HostCheck, KnownHosts
from noonday.api.openapi import document
from noonday.api.operations import resources
from noonday.api.reply import Reply
from noonday.api.routing import Route, encode

# Paths are matched in this order: fixed paths before those with parameters, busy ones first.
ROUTES = (
    *batch.ROUTES,
    *jobs.ROUTES,
    *executions.ROUTES,
    *remote_workers.ROUTES,
    *occurrences.ROUTES,
    *schedules.ROUTES,
    *task_routes.ROUTES,
    *executions_of_tasks.ROUTES,
    *dead_tasks.ROUTES,
    *webhook_secrets.ROUTES,
    *webhook_endpoints.ROUTES,
    *notifications.ROUTES,
    *users.ROUTES,
    *providers.ROUTES,
    *alert_preferences.ROUTES,
    *alert_routes.ROUTES,
    *dead_letters.ROUTES,
    *bulk_operations.ROUTES,
    *pauses.ROUTES,
    *pools.ROUTES,
    *workers.ROUTES,
    *audit.ROUTES,
    *tenants.ROUTES,
    *health.ROUTES,
    *proof.ROUTES,
    *docs_page.ROUTES,
)


def create_app(services: ApiServices, hosts: KnownHosts) -> ASGIApp:
    """Return the ASGI application of the API. Every path under `/v1` requires a token."""
    app = Starlette(routes=resources([*ROUTES, _OPENAPI_ROUTE], services))
    app.router.redirect_slashes = False
    app.router.default = _unknown_route
    return HostCheck(app, hosts)


def create_ops_app(health_: Health, hosts: KnownHosts) -> ASGIApp:
    """Return an ASGI application with health and metrics only, for processes that serve no API."""
    app = Starlette(routes=[StarletteRoute(path, answer) for path, answer in health.alone(health_).items()])
    app.router.redirect_slashes = False
    app.router.default = _unknown_route
    return HostCheck(app, hosts)


async def show_openapi(_context: RequestContext) -> Reply:
    """Return the OpenAPI document."""
    return Reply(_document())


@cache
def _document() -> bytes:
    return encode(document(ROUTES))


_OPENAPI_ROUTE = Route("GET", "/openapi.json", show_openapi, scope=None, documented=False)


async def _unknown_route(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocketClose()(scope, receive, send)
        return
    path = scope["path"]
    error = UnknownRoute(f"unknown path {instance_of(path)}; /docs lists the paths")
    await reply_of(error, path).send(send, without_body=scope["method"] == "HEAD")
