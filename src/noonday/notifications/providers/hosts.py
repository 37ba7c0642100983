"""Hosts that provider accounts may name."""

from collections.abc import Collection

from noonday.webhooks.addresses import Networks

_EVERY_NETWORK = ("0.0.0.0/0", "::/0")


class ProviderHosts:
    """Decides which addresses may be dialled for a host.

    Tenants choose the hosts of their accounts, so their addresses must be public or in a network that the operator allows.
    Endpoints that the operator runs, such as doubles or a mail relay, are exempt: they are dialled wherever they are.
    """

    def __init__(self, networks: Networks, operated: Collection[tuple[str, int]] = ()) -> None:
        """Create the rule. `operated`: host and port of the endpoints that the operator runs."""
        self.networks = networks
        self.unlimited = Networks(_EVERY_NETWORK)
        self._operated = frozenset(operated)

    def is_operated(self, host: str, port: int) -> bool:
        """Return whether the operator runs the endpoint."""
        return (host, port) in self._operated

    def networks_for(self, host: str, port: int) -> Networks:
        """Return the networks that may be dialled for an endpoint."""
        return self.unlimited if self.is_operated(host, port) else self.networks
