"""What an operator allows to be called, and for how long."""

from ipaddress import ip_address

from noonday.model.errors import Flaw, InvalidInput
from noonday.webhooks.addresses import Networks
from noonday.webhooks.handler import MAX_TIMEOUT_SEC
from noonday.webhooks.urls import POINTER, Endpoint, read_url


class CallBounds:
    """Checked when a URL is taken in. Whoever makes the call checks again."""

    def __init__(self, networks: Networks | None = None, timeout_sec: float = MAX_TIMEOUT_SEC) -> None:
        self._networks = networks or Networks()
        self.timeout_sec = timeout_sec

    def flaws_of_timeout(self, timeout_sec: float) -> list[Flaw]:
        if timeout_sec <= self.timeout_sec:
            return []
        detail = f"must be at most {self.timeout_sec:g} (webhooks.max_timeout_sec)"
        return [Flaw("/timeout_seconds", detail, timeout_sec, f"up to {self.timeout_sec:g}")]

    def endpoint_of(self, url: str) -> Endpoint:
        """The endpoint of a URL that may be called. Raises InvalidInput as `read_url`, also for an address that may not be.

        Only of an address that is written out: a name is looked up when it is called, each time.
        """
        endpoint = read_url(url)
        try:
            address = ip_address(endpoint.host)
        except ValueError:
            return endpoint
        if self._networks.refusal_of(address) is not None:
            detail = f"{address} is not public and may not be called, unless webhooks.allow_networks lists its network"
            raise InvalidInput.of(POINTER, detail, url)
        return endpoint


USUAL_BOUNDS = CallBounds()
"""Those of an operator who has set nothing."""
