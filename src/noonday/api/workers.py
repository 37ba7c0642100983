"""/v1/workers and /v1/overview: workers, backlog and lateness."""

from typing import Any

import msgspec

from noonday.api.context import RequestContext
from noonday.api.query import ScopeQuery
from noonday.api.routing import Route
from noonday.model.view import WorkerView


class WorkerList(msgspec.Struct, frozen=True):
    workers: list[WorkerView]


class LatenessQuantiles(msgspec.Struct, frozen=True):
    """Quantiles of lateness in milliseconds; null if nothing has run yet."""

    p50: float | None
    p95: float | None
    p99: float | None


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """Backlog, rate and lateness, as `noonday top` shows them."""

    rate_per_sec: float | None
    """Null for one tenant, like the lateness: both are measured for the whole server only."""
    lateness_ms: LatenessQuantiles
    due: int
    due_is_least: bool
    """True if `due` is a lower bound, because only part of the timeline was scanned."""
    running: int
    queued: int
    dead_letters: int
    workers: int
    oldest_due_age_ms: float | None
    tick_age_ms: float | None


async def list_workers(context: RequestContext) -> WorkerList:
    """List the workers and their running executions."""
    return WorkerList(await context.intake.workers.list_workers(context.caller))


async def show_overview(context: RequestContext, query: ScopeQuery) -> dict[str, Any]:
    """Get the backlog of the tenant.

    With `scope=all` (operators), the backlog of all tenants, with rate and lateness.
    """
    return await context.intake.workers.overview(context.caller, all_tenants=query.scope == "all")


ROUTES = (
    Route("GET", "/v1/workers", list_workers, scope="read"),
    Route("GET", "/v1/overview", show_overview, scope="read", returns=Overview),
)
