"""Operator limits on webhook calls: networks and timeout."""

from ipaddress import ip_address

from noonday.model.errors import Flaw, InvalidInput
from noonday.model.url import POINTER, Endpoint, read_url
from noonday.webhooks.addresses import Networks
from noonday.webhooks.handler import MAX_TIMEOUT_SEC


class CallBounds:
    """Limits checked when a task or preference is saved. The worker that makes the call checks them again."""

    def __init__(self, networks: Networks | None = None, timeout_sec: float = MAX_TIMEOUT_SEC) -> None:
        self._networks = networks or Networks()
        self.timeout_sec = timeout_sec

    def flaws_of_timeout(self, timeout_sec: float) -> list[Flaw]:
        if timeout_sec <= self.timeout_sec:
            return []
        detail = f"must be at most {self.timeout_sec:g} (webhooks.max_timeout_sec)"
        return [Flaw("/timeout_seconds", detail, timeout_sec, f"up to {self.timeout_sec:g}")]

    def endpoint_of(self, url: str) -> Endpoint:
        """Return the endpoint of a URL. Raises InvalidInput as `read_url` does, and for an IP address that is not allowed.

        Host names are not resolved here; the worker resolves and checks them at every call.
        """
        endpoint = read_url(url)
        try:
            address = ip_address(endpoint.host)
        except ValueError:
            return endpoint
        if self._networks.refusal_of(address) is not None:
            detail = f"{address} is not a public address; to call it, add its network to webhooks.allow_networks"
            raise InvalidInput.of(POINTER, detail, url)
        return endpoint


DEFAULT_BOUNDS = CallBounds()
"""Limits with default settings."""
