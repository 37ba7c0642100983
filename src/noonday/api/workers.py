"""/v1/workers and /v1/overview: who works, and how it goes."""

from typing import Any

import msgspec

from noonday.api.call import Call
from noonday.api.query import FiguresOf
from noonday.api.routing import Route
from noonday.model.view import WorkerView


class WorkerList(msgspec.Struct, frozen=True):
    workers: list[WorkerView]


class Lateness(msgspec.Struct, frozen=True):
    """None where nothing has run yet."""

    p50: float | None
    p95: float | None
    p99: float | None


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """The figures of `noonday top`."""

    rate_per_sec: float | None
    """Null for one tenant, as the lateness is: both are kept for the whole server."""
    lateness_ms: Lateness
    due: int
    due_is_least: bool
    """There may be more: not all of the timeline was looked at."""
    running: int
    queued: int
    dead_letters: int
    workers: int
    oldest_due_age_ms: float | None
    tick_age_ms: float | None


async def list_workers(call: Call) -> WorkerList:
    """List the workers, with what each runs now."""
    return WorkerList(await call.reading.workers(call.caller))


async def show_overview(call: Call, query: FiguresOf) -> dict[str, Any]:
    """Show the tenant's backlog at a glance.

    With `scope=all` that of all tenants, with rate and lateness, for operators.
    """
    return await call.reading.overview(call.caller, all_tenants=query.scope == "all")


ROUTES = (
    Route("GET", "/v1/workers", list_workers, scope="read"),
    Route("GET", "/v1/overview", show_overview, scope="read", returns=Overview),
)
