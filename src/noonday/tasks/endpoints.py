"""Endpoint service: settings, health, enabling and disabling of a tenant's endpoints."""

import msgspec

from noonday.intake.audit import audit_entry
from noonday.intake.idempotency import Idempotency
from noonday.intake.receipts import Receipts
from noonday.model.caller import Caller
from noonday.model.endpoint import EndpointHealth, EndpointRow, EndpointSettings, endpoint_id, endpoint_named
from noonday.model.endpoint_view import EndpointHealthView, EndpointPage, EndpointView
from noonday.model.errors import Conflict, InvalidInput, NotFound
from noonday.model.ids import TenantId
from noonday.model.job import instant_of, text_of
from noonday.model.secret import EndpointKey
from noonday.model.url import read_url
from noonday.ports.clock import Clock
from noonday.ports.endpoints import Endpoints
from noonday.tasks.endpoint_disabler import EndpointDisabler

CACHE_SEC = 2.0
"""Time after which a process refuses tasks for an endpoint that another process disabled."""
_MAX_CACHED = 10_000


class EndpointService:
    """Commands and queries of endpoints, except their secrets."""

    def __init__(
        self, endpoints: Endpoints, endpoint_disabler: EndpointDisabler, receipts: Receipts, clock: Clock
    ) -> None:
        self._endpoints = endpoints
        self._endpoint_disabler = endpoint_disabler
        self._receipts = receipts
        self._clock = clock
        self._enabled_until: dict[EndpointKey, float] = {}
        """Endpoints known to be enabled, with the monotonic time until which this is trusted."""

    async def list_endpoints(self, caller: Caller, *, cursor: str | None = None, limit: int = 50) -> EndpointPage:
        """List endpoints that were called or have settings, by name."""
        after = cursor and (endpoint_named(cursor) or cursor)
        rows = await self._endpoints.list_endpoints(caller.tenant, after, limit + 1)
        views = tuple(endpoint_view(row) for row in rows[:limit])
        return EndpointPage(endpoints=views, next=views[-1].id if len(rows) > limit else None)

    async def get(self, caller: Caller, name: str) -> EndpointView:
        """Return an endpoint by its id. Raises NotFound if it was never called and has no settings."""
        row = await self._endpoints.find(_key_of(caller, name))
        if row is None:
            detail = f"no endpoint {endpoint_named(name)}: it was never called and has no settings"
            raise NotFound(detail, endpoint=endpoint_named(name))
        return endpoint_view(row)

    async def put(
        self, caller: Caller, name: str, settings: EndpointSettings, idem: Idempotency | None = None
    ) -> EndpointView:
        """Replace the settings of an endpoint, known or not. They take effect within seconds."""
        key = _key_of(caller, name)
        async with self._receipts.once(caller, idem):
            now_ms = self._clock.now_ms()
            audit = audit_entry(caller, "endpoint.put", key[1], now_ms, msgspec.to_builtins(settings))
            row = await self._endpoints.put(key, settings, now_ms, audit)
            return await self._receipts.keep(caller, idem, endpoint_view(row))

    async def disable(self, caller: Caller, name: str, idem: Idempotency | None = None) -> EndpointView:
        """Disable an endpoint: its tasks are halted, and new ones are refused."""
        key = _key_of(caller, name)
        async with self._receipts.once(caller, idem):
            reason, now_ms = f"was disabled by {caller.subject}", self._clock.now_ms()
            audit = audit_entry(caller, "endpoint.disable", key[1], now_ms, {"why": reason})
            await self._endpoints.disable(key, reason, now_ms, audit)
            self._enabled_until.pop(key, None)
            return await self._receipts.keep(caller, idem, await self._apply_to_tasks(key))

    async def enable(self, caller: Caller, name: str, idem: Idempotency | None = None) -> EndpointView:
        """Enable an endpoint, reset its health, and resume the tasks that were halted with it. Raises NotFound."""
        key = _key_of(caller, name)
        async with self._receipts.once(caller, idem):
            await self.get(caller, name)
            now_ms = self._clock.now_ms()
            await self._endpoints.enable(key, now_ms, audit_entry(caller, "endpoint.enable", key[1], now_ms))
            return await self._receipts.keep(caller, idem, await self._apply_to_tasks(key))

    async def refuse_disabled(self, tenant: TenantId, endpoint: str | None) -> None:
        """Raise Conflict if an endpoint is disabled, with the time, the reason and the next step."""
        if endpoint is None or self._enabled_until.get((tenant, endpoint), 0.0) > self._clock.monotonic():
            return
        row = await self._endpoints.find((tenant, endpoint))
        if row is not None and row.health.disabled_ms is not None:
            raise _refusal(row, row.health.disabled_ms)
        if len(self._enabled_until) > _MAX_CACHED:
            self._enabled_until = {}
        self._enabled_until[tenant, endpoint] = self._clock.monotonic() + CACHE_SEC

    async def _apply_to_tasks(self, key: EndpointKey) -> EndpointView:
        """Halt or resume the first tasks at once; the endpoint disabler does the rest."""
        row = await self._endpoints.find(key)
        assert row is not None
        await self._endpoint_disabler.apply_to_tasks(row)
        return endpoint_view(row)


def endpoint_view(row: EndpointRow) -> EndpointView:
    return EndpointView(endpoint_id(row.endpoint), row.endpoint, row.settings, _health(row.health))


def _health(health: EndpointHealth) -> EndpointHealthView:
    return EndpointHealthView(
        status=health.status,
        failing_since=instant_of(health.failing_since_ms),
        failures=health.failures,
        last_success_at=instant_of(health.last_success_ms),
        last_failure_at=instant_of(health.last_failure_ms),
        last_error=health.last_error,
        disabled_at=instant_of(health.disabled_ms),
        disabled_because=health.disabled_why,
    )


def _key_of(caller: Caller, name: str) -> EndpointKey:
    """Return tenant and endpoint of an id. Raises NotFound if the id is malformed."""
    endpoint = endpoint_named(name)
    if endpoint is None or not _is_endpoint(endpoint):
        raise NotFound(f"there is no endpoint {name!r}: its id is ep_ and the base64url of scheme://host:port")
    return caller.tenant, endpoint


def _is_endpoint(text: str) -> bool:
    try:
        return str(read_url(text)) == text
    except InvalidInput:
        return False


def _refusal(row: EndpointRow, disabled_ms: int) -> Conflict:
    since = text_of(disabled_ms)
    return Conflict(
        f"{row.endpoint} is disabled since {since}: it {row.health.disabled_why}. When it works again, enable it: "
        f"`noonday endpoint enable {row.endpoint}`, or POST /v1/webhook-endpoints/{endpoint_id(row.endpoint)}/enable",
        endpoint=row.endpoint,
        disabled_at=since,
    )
