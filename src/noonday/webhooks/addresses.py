"""IP addresses that webhooks may call."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from noonday.model.errors import Flaw, InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Networks:
    """Public addresses, and the networks that the operator allows in addition.

    An IPv6 address that embeds IPv4 addresses is refused, unless its network is listed and every embedded address is
    allowed too. So listing 64:ff9b::/96 for a NAT64 gateway opens the public internet behind it, and nothing else.
    """

    def __init__(self, allow: Sequence[str] = (), pointer: str = "/webhooks/allow_networks") -> None:
        """Raises InvalidInput with a flaw, located below `pointer`, for each entry that is not a network."""
        self._allowed = _parse(allow, pointer)

    def refusal_of(self, ip: str | Address) -> str | None:
        """Return why this address may not be called, or None if it may."""
        try:
            address = ip_address(ip)
        except ValueError:
            return f"{ip} is not an address"
        kind = self._kind_of(address)
        return None if kind is None else f"{address} is {kind}; to call it, add its network to webhooks.allow_networks"

    def _kind_of(self, address: Address) -> str | None:
        if self._is_allowed(address):
            return next(filter(None, map(self._embedded_kind_of, embedded_in(address))), None)
        return kind_of(address)

    def _embedded_kind_of(self, address: IPv4Address) -> str | None:
        kind = self._kind_of(address)
        return None if kind is None else f"a form of {address}, {kind}"

    def _is_allowed(self, address: Address) -> bool:
        return any(address in network for network in self._allowed if network.version == address.version)


@lru_cache(maxsize=4096)
def kind_of(address: Address) -> str | None:
    """Return the kind of a non-public address, such as "a private address", or None if the address is public."""
    for network, kind in _KINDS:
        if network.version == address.version and address in network:
            return kind
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "a reserved address"
    return None if address.is_global else "not a public address"


def embedded_in(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses embedded in an IPv6 address.

    In 64:ff9b:1::/48 the position of the IPv4 address depends on the gateway; it is read from the end, as RFC 8215 advises.
    """
    if isinstance(address, IPv4Address):
        return
    bits = int(address)
    if any(address in network for network in _EMBEDDING_AT_THE_END):
        yield IPv4Address(bits & 0xFFFF_FFFF)
    elif address in _6TO4:
        yield IPv4Address(bits >> 80 & 0xFFFF_FFFF)
    elif address in _TEREDO:
        yield IPv4Address(bits >> 64 & 0xFFFF_FFFF)
        yield IPv4Address(~bits & 0xFFFF_FFFF)


_GLOBAL_UNICAST = IPv6Network("2000::/3")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_EMBEDDING_AT_THE_END = tuple(
    IPv6Network(each) for each in ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
_KINDS: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/32", "the unspecified address"),
        ("0.0.0.0/8", "an address of this network"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared address behind a carrier's NAT"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "the address of Azure's internal services"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "an address reserved for protocols"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a relay of 6to4"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmarking address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "the unspecified address"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", "an IPv4 address mapped into IPv6"),
        ("::ffff:0:0:0/96", "an IPv4 address translated into IPv6"),
        ("::/96", "an IPv4 address in the compatible form of IPv6"),
        ("64:ff9b::/96", "an IPv4 address behind NAT64"),
        ("64:ff9b:1::/48", "an IPv4 address behind a local NAT64"),
        ("100::/64", "a discarded address"),
        ("2001::/32", "an IPv4 address behind Teredo"),
        ("2001:2::/48", "a benchmarking address"),
        ("2001:db8::/32", "a documentation address"),
        ("2001::/23", "an address reserved for protocols"),
        ("2002::/16", "an IPv4 address behind 6to4"),
        ("3fff::/20", "a documentation address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
    )
)


def _parse(allow: Sequence[str], pointer: str) -> tuple[Network, ...]:
    networks: list[Network] = []
    flaws: list[Flaw] = []
    for index, text in enumerate(allow):
        try:
            networks.append(ip_network(text.strip()))
        except ValueError as error:
            flaws.append(
                Flaw(f"{pointer}/{index}", f"is not a network: {error}", text, "such as 10.0.0.0/8 or fd00::/8")
            )
    if flaws:
        raise InvalidInput("invalid networks: " + "; ".join(f"{flaw.value!r} {flaw.detail}" for flaw in flaws), flaws)
    return tuple(networks)
