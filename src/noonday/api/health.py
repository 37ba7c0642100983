"""Open to everybody: how the process is doing."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from noonday.api.call import Call, Health
from noonday.api.errors import NotReady
from noonday.api.reply import Reply
from noonday.api.routing import Route

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Up(msgspec.Struct, frozen=True):
    status: Literal["UP"] = "UP"


async def show_liveness(call: Call) -> Up:
    """Say whether the process is alive."""
    if not call.engine.health.live():
        raise NotReady("the process does not respond as it should; restart it")
    return Up()


async def show_readiness(call: Call) -> Up:
    """Say whether the process does its work: it fails when the tick loop is stuck."""
    reasons = call.engine.health.ready()
    if reasons:
        raise NotReady("; ".join(reasons), reasons=reasons)
    return Up()


async def show_metrics(call: Call) -> Reply:
    """Metrics in Prometheus' text format."""
    return Reply(call.engine.health.metrics(), media_type=PROMETHEUS_TEXT)


ROUTES = (
    Route("GET", "/healthz", show_liveness, scope=None),
    Route("GET", "/readyz", show_readiness, scope=None),
    Route("GET", "/metrics", show_metrics, scope=None, returns=str, media_type="text/plain"),
)


def alone(health: Health) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    """The same, by path, for a process that has nothing else to answer."""

    async def live(_request: Request) -> Response:
        return _answer([] if health.live() else ["the process does not respond as it should; restart it"])

    async def ready(_request: Request) -> Response:
        return _answer(health.ready())

    async def metrics(_request: Request) -> Response:
        return Response(health.metrics(), media_type=PROMETHEUS_TEXT)

    return {"/healthz": live, "/readyz": ready, "/metrics": metrics}


def _answer(reasons: list[str]) -> Response:
    if reasons:
        return JSONResponse({"status": "DOWN", "reasons": reasons}, status_code=503)
    return JSONResponse({"status": "UP"})
