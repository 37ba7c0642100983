"""Health and metrics, without a token."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from noonday.api.context import Health, RequestContext
from noonday.api.errors import NotReady
from noonday.api.reply import Reply
from noonday.api.routing import Route

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Up(msgspec.Struct, frozen=True):
    status: Literal["UP"] = "UP"


async def show_liveness(context: RequestContext) -> Up:
    """Check that the process is alive."""
    if not context.services.health.live():
        raise NotReady("the process is not responding; restart it")
    return Up()


async def show_readiness(context: RequestContext) -> Up:
    """Check that the process is ready: it fails when the tick loop is stuck."""
    reasons = context.services.health.ready()
    if reasons:
        raise NotReady("; ".join(reasons), reasons=reasons)
    return Up()


async def show_metrics(context: RequestContext) -> Reply:
    """Return metrics in Prometheus text format."""
    return Reply(context.services.health.metrics(), media_type=PROMETHEUS_TEXT)


ROUTES = (
    Route("GET", "/healthz", show_liveness, scope=None),
    Route("GET", "/readyz", show_readiness, scope=None),
    Route("GET", "/metrics", show_metrics, scope=None, returns=str, media_type="text/plain"),
)


def alone(health: Health) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    """Return the same endpoints by path, for a process that serves no API."""

    async def live(_request: Request) -> Response:
        return _answer([] if health.live() else ["the process is not responding; restart it"])

    async def ready(_request: Request) -> Response:
        return _answer(health.ready())

    async def metrics(_request: Request) -> Response:
        return Response(health.metrics(), media_type=PROMETHEUS_TEXT)

    return {"/healthz": live, "/readyz": ready, "/metrics": metrics}


def _answer(reasons: list[str]) -> Response:
    if reasons:
        return JSONResponse({"status": "DOWN", "reasons": reasons}, status_code=503)
    return JSONResponse({"status": "UP"})
