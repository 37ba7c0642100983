"""What can be asked of a server about those whom tasks call."""

from typing import Any

from noonday.model.endpoint import EndpointSettings, endpoint_id
from noonday.sdk.fields import filled
from noonday.sdk.transport import Transport, path_of
from noonday.tasks.endpoints import EndpointPage, EndpointView
from noonday.webhooks.urls import read_url


class Endpoints:
    """`client.endpoints`. An endpoint is said as a URL, of which scheme, host and port count, or as the id that the server gave
    it. Errors and retries are those of the client; every change carries an Idempotency-Key."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    async def list(self, *, cursor: str | None = None, limit: int | None = None) -> EndpointPage:
        """One page of those that were called or have settings, by name; `next` of it is the cursor of the following one."""
        return await self._http.get(EndpointPage, "/v1/webhook-endpoints", {"cursor": cursor, "limit": limit})

    async def get(self, endpoint: str) -> EndpointView:
        """Raises NotFound for one that was never called, and for which nothing is set."""
        return await self._http.get(EndpointView, _path(endpoint))

    async def set(
        self,
        endpoint: str,
        settings: EndpointSettings | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> EndpointView:
        """Replace all that is set: `set("https://api.example.com", rate_per_sec=10, burst=20, max_concurrency=5)`."""
        said = filled(EndpointSettings, settings, fields)
        return await self._http.change(EndpointView, "PUT", _path(endpoint), said, key=idempotency_key)

    async def enable(self, endpoint: str, *, idempotency_key: str | None = None) -> EndpointView:
        """Call it again: tasks that were stopped because it was disabled go on. Raises NotFound."""
        return await self._http.change(EndpointView, "POST", _path(endpoint, "enable"), key=idempotency_key)

    async def disable(self, endpoint: str, *, idempotency_key: str | None = None) -> EndpointView:
        """Call it no more: its tasks are stopped, and new ones are refused."""
        return await self._http.change(EndpointView, "POST", _path(endpoint, "disable"), key=idempotency_key)


def _path(endpoint: str, *more: str) -> str:
    name = endpoint if endpoint.startswith("ep_") else endpoint_id(str(read_url(endpoint)))
    return path_of("webhook-endpoints", name, *more)
