"""HTTP calls to the APIs of providers."""

from pathlib import Path

from aiohttp.abc import AbstractResolver
from yarl import URL

from noonday.model.errors import Flaw, InvalidInput
from noonday.model.url import read_url
from noonday.notifications.providers.hosts import ProviderHosts
from noonday.ports.clock import Clock
from noonday.webhooks.calling import Exchange, WebhookClient, WebhookRequest

TIMEOUT_SEC = 15.0
"""Maximum duration of one call in seconds."""
MAX_CALLS = 2_000
"""Maximum number of calls in flight."""


class ProviderClient:
    """Makes the calls of all accounts. Tenants never share a connection. Used on one event loop."""

    def __init__(
        self,
        clock: Clock,
        hosts: ProviderHosts,
        *,
        timeout_sec: float = TIMEOUT_SEC,
        ca_file: Path | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._hosts = hosts
        self._timeout_sec = timeout_sec
        self._client = WebhookClient(hosts.networks, clock, limit=MAX_CALLS, ca_file=ca_file, resolver=resolver)
        self._operated = WebhookClient(hosts.unlimited, clock, limit=MAX_CALLS, ca_file=ca_file)

    async def call(self, tenant: str, request: WebhookRequest) -> Exchange:
        """Make one call for a tenant. Failures of the network or the provider are part of the exchange."""
        endpoint = read_url(request.url)
        client = self._operated if self._hosts.is_operated(endpoint.host, endpoint.port) else self._client
        return await client.call(tenant, request, self._timeout_sec)

    async def close(self) -> None:
        """Close every connection. Calls in flight end with an error."""
        await self._client.close()
        await self._operated.close()


def flaw_of_url(url: object, domain: str, hosts: ProviderHosts, name: str = "url") -> Flaw | None:
    """Check the URL in a setting. Returns its flaw, or None if it is missing or belongs to the provider's domain.

    An account's URL gets the account's credentials, so it is the provider's or one that the operator runs.
    """
    if url is None:
        return None
    detail = f"must be an https:// URL of {domain} without a path, or an endpoint that the operator of this server has listed"
    try:
        endpoint, path = read_url(str(url)), URL(str(url)).raw_path_qs
    except InvalidInput:
        return Flaw(f"/settings/{name}", detail, str(url)[:200], f"https://api.{domain}")
    is_theirs = endpoint.scheme == "https" and endpoint.host.endswith(f".{domain}") and endpoint.port == 443
    if path == "/" and (is_theirs or hosts.is_operated(endpoint.host, endpoint.port)):
        return None
    return Flaw(f"/settings/{name}", detail, str(url)[:200], f"https://api.{domain}")
