"""/v1/tenants: settings and usage of tenants."""

from datetime import UTC, date, datetime, time
from typing import Annotated

import msgspec

from noonday.api.context import RequestContext
from noonday.api.contract import INSTANT
from noonday.api.instants import DAY_MS, bounded_ms
from noonday.api.query import Query
from noonday.api.routing import Route, TenantName
from noonday.model.errors import InvalidInput
from noonday.model.view import TenantSettings, TenantView, UsageView

DEFAULT_DAYS = 30
Day = Annotated[date, msgspec.Meta(extra_json_schema={"pattern": INSTANT})]


class UsageQuery(Query, frozen=True):
    from_: Day | None = msgspec.field(default=None, name="from")
    to: Day | None = None


async def get_tenant(context: RequestContext, tenant_id: TenantName) -> TenantView:
    """Get the settings of the caller's tenant, or of any tenant with scope operator."""
    return await context.intake.tenants.get(context.caller, tenant_id)


async def put_tenant(context: RequestContext, tenant_id: TenantName, body: TenantSettings) -> TenantView:
    """Replace the settings of a tenant."""
    return await context.intake.tenants.put(context.caller, tenant_id, body, context.idem)


async def get_usage(context: RequestContext, tenant_id: TenantName, query: UsageQuery) -> UsageView:
    """Get daily usage (UTC) of the caller's tenant, or of any tenant with scope operator.

    `from` and `to` are inclusive; the default is the last 30 days. A run counts on the day on which it ended. Usage is kept for
    400 days.
    """
    from_day, to_day = _span(query, context.services.now_ms() // DAY_MS)
    return await context.intake.tenants.usage(context.caller, tenant_id, from_day, to_day)


def _span(query: UsageQuery, today: int) -> tuple[int, int]:
    from_day = _day_number(query.from_, "/from") if query.from_ else None
    to_day = _day_number(query.to, "/to") if query.to else max(today, from_day or 0)
    if from_day is None:
        return to_day - DEFAULT_DAYS + 1, to_day
    if to_day < from_day:
        raise InvalidInput.of("/to", f"must not be before from ({query.from_})", str(query.to))
    return from_day, to_day


def _day_number(day: date, pointer: str) -> int:
    return bounded_ms(datetime.combine(day, time(), UTC), pointer) // DAY_MS


ROUTES = (
    Route("GET", "/v1/tenants/{tenantId}", get_tenant, scope="read"),
    Route("PUT", "/v1/tenants/{tenantId}", put_tenant, scope="operator"),
    Route("GET", "/v1/tenants/{tenantId}/usage", get_usage, scope="read"),
)
