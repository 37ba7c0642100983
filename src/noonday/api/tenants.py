"""/v1/tenants: what a tenant may use, and what it has used."""

from datetime import UTC, date, datetime, time
from typing import Annotated

import msgspec

from noonday.api.call import Call
from noonday.api.contract import INSTANT
from noonday.api.instants import DAY_MS, bounded_ms
from noonday.api.query import Query
from noonday.api.routing import Route, TenantName
from noonday.model.errors import InvalidInput
from noonday.model.view import TenantSettings, TenantView, UsageView

USUAL_DAYS = 30
Day = Annotated[date, msgspec.Meta(extra_json_schema={"pattern": INSTANT})]


class Days(Query, frozen=True):
    from_: Day | None = msgspec.field(default=None, name="from")
    to: Day | None = None


async def get_tenant(call: Call, tenant_id: TenantName) -> TenantView:
    """Show a tenant's settings: one's own, or any with the scope operator."""
    return await call.reading.get_tenant(call.caller, tenant_id)


async def put_tenant(call: Call, tenant_id: TenantName, body: TenantSettings) -> TenantView:
    """Replace a tenant's settings."""
    return await call.desk.put_tenant(call.caller, tenant_id, body, call.idem)


async def get_usage(call: Call, tenant_id: TenantName, query: Days) -> UsageView:
    """Show what a tenant has used, day by day (UTC): one's own, or any with the scope operator.

    Both days are part of it. Without `from` and `to`: the last 30 days. A run counts on the day on which it ended. Days are
    kept for 400 days.
    """
    from_day, to_day = _span(query, call.engine.now_ms() // DAY_MS)
    return await call.reading.usage(call.caller, tenant_id, from_day, to_day)


def _span(query: Days, today: int) -> tuple[int, int]:
    from_day = _number_of(query.from_, "/from") if query.from_ else None
    to_day = _number_of(query.to, "/to") if query.to else max(today, from_day or 0)
    if from_day is None:
        return to_day - USUAL_DAYS + 1, to_day
    if to_day < from_day:
        raise InvalidInput.of("/to", f"to lies before from, which is {query.from_}", str(query.to))
    return from_day, to_day


def _number_of(day: date, pointer: str) -> int:
    return bounded_ms(datetime.combine(day, time(), UTC), pointer) // DAY_MS


ROUTES = (
    Route("GET", "/v1/tenants/{tenantId}", get_tenant, scope="read"),
    Route("PUT", "/v1/tenants/{tenantId}", put_tenant, scope="operator"),
    Route("GET", "/v1/tenants/{tenantId}/usage", get_usage, scope="read"),
)
