"""Client of /v1/webhook-endpoints: limits and health of the endpoints that tasks call."""

from typing import Any

from noonday.model.endpoint import EndpointSettings, endpoint_id
from noonday.model.endpoint_view import EndpointPage, EndpointView
from noonday.model.url import read_url
from noonday.sdk.fields import filled
from noonday.sdk.transport import ClientPart, path_of


class EndpointsClient(ClientPart):
    """`client.endpoints`. An endpoint is given by its id, or by a URL with its scheme, host and port.

    Errors and retries are as in `Client`; every change has an Idempotency-Key.
    """

    async def list(self, *, cursor: str | None = None, limit: int | None = None) -> EndpointPage:
        """Return a page of the endpoints that were called or have settings, by name. `next` is the next `cursor`."""
        return await self._http.get(EndpointPage, "/v1/webhook-endpoints", {"cursor": cursor, "limit": limit})

    async def get(self, endpoint: str) -> EndpointView:
        """Return an endpoint. Raises NotFound if it was never called and has no settings."""
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
        """Replace all settings: `set("https://api.example.com", rate_per_sec=10, burst=20, max_concurrency=5)`."""
        body = filled(EndpointSettings, settings, fields)
        return await self._http.change(EndpointView, "PUT", _path(endpoint), body, key=idempotency_key)

    async def enable(self, endpoint: str, *, idempotency_key: str | None = None) -> EndpointView:
        """Enable an endpoint. Tasks that stopped because it was disabled resume. Raises NotFound."""
        return await self._http.change(EndpointView, "POST", _path(endpoint, "enable"), key=idempotency_key)

    async def disable(self, endpoint: str, *, idempotency_key: str | None = None) -> EndpointView:
        """Disable an endpoint. Its tasks stop, and new ones are rejected."""
        return await self._http.change(EndpointView, "POST", _path(endpoint, "disable"), key=idempotency_key)


def _path(endpoint: str, *more: str) -> str:
    name = endpoint if endpoint.startswith("ep_") else endpoint_id(str(read_url(endpoint)))
    return path_of("webhook-endpoints", name, *more)
