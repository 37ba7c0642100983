"""Addresses that may be dialled."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noonday.model.errors import InvalidInput
from noonday.webhooks.addresses import Networks

PUBLIC = Networks()
AZURE = IPv4Address("168.63.129.16")
IPV4 = st.ip_addresses(v=4)
IPV6 = st.ip_addresses(v=6)
PRIVATE_IPV4 = st.one_of(
    st.ip_addresses(network=network)
    for network in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10")
)


def special(address: IPv4Address | IPv6Address) -> bool:
    return (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or not address.is_global
    )


@pytest.mark.slow
@given(IPV4)
@example(IPv4Address("255.255.255.255"))
@example(IPv4Address("100.64.0.1"))
@example(IPv4Address("8.8.8.8"))
def test_ipv4_address_is_refused_exactly_if_it_is_special(address: IPv4Address) -> None:
    # 192.88.99.0/24 and 192.0.0.0/24 are judged differently from one version of the standard library to the next.
    if str(address).startswith(("192.88.99.", "192.0.0.")) or address == AZURE:
        assert PUBLIC.refusal_of(address)
    else:
        assert bool(PUBLIC.refusal_of(address)) == special(address)


@pytest.mark.slow
@given(IPV6)
def test_special_ipv6_address_is_refused(address: IPv6Address) -> None:
    if special(address):
        assert PUBLIC.refusal_of(address)


@pytest.mark.slow
@given(st.ip_addresses(network="2a00::/12"))
def test_public_ipv6_address_is_allowed(address: IPv6Address) -> None:
    assert PUBLIC.refusal_of(address) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "this network"),
        ("10.1.2.3", "private"),
        ("100.100.100.200", "carrier"),
        ("127.0.0.1", "loopback"),
        ("168.63.129.16", "Azure"),
        ("169.254.169.254", "link-local"),
        ("172.31.255.255", "private"),
        ("192.0.0.192", "protocols"),
        ("192.0.2.1", "documentation"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmarking"),
        ("224.0.0.1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "mapped"),
        ("::ffff:8.8.8.8", "mapped"),
        ("::ffff:0:127.0.0.1", "translated"),
        ("::127.0.0.1", "compatible"),
        ("64:ff9b::7f00:1", "NAT64"),
        ("64:ff9b::8.8.8.8", "NAT64"),
        ("64:ff9b:1::a00:1", "local NAT64"),
        ("2001:0:7f00:1::", "Teredo"),
        ("2001:2::1", "benchmarking"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("3fff::1", "documentation"),
        ("4000::1", "reserved"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("localhost", "not an address"),
        ("0x7f.1", "not an address"),
        ("0177.0.0.1", "not an address"),
    ],
)
def test_refusal_names_the_kind_of_address(text: str, kind: str) -> None:
    assert kind in str(PUBLIC.refusal_of(text))


def test_listed_network_is_allowed_and_its_neighbours_are_not() -> None:
    networks = Networks(["127.0.0.0/8", " fd00::/8", "10.1.2.3"])
    assert [networks.refusal_of(each) for each in ("127.9.9.9", "fd00::1", "10.1.2.3")] == [None] * 3
    assert all(networks.refusal_of(each) for each in ("::1", "fc00::1", "10.1.2.4", "::ffff:127.0.0.1"))


FORMS = {
    "::ffff:0:0/96": lambda ip: IPv6Address(0xFFFF << 32 | int(ip)),
    "::/96": lambda ip: IPv6Address(int(ip)),
    "64:ff9b::/96": lambda ip: IPv6Address(0x64FF9B << 96 | int(ip)),
    "64:ff9b:1::/48": lambda ip: IPv6Address(0x64FF9B0001 << 80 | int(ip)),
    "2002::/16": lambda ip: IPv6Address(0x2002 << 112 | int(ip) << 80),
    "2001::/32": lambda ip: IPv6Address(0x20010000 << 96 | int(IPv4Address("8.8.8.8")) << 64 | int(ip) ^ 0xFFFF_FFFF),
}


@pytest.mark.slow
@pytest.mark.parametrize("network", FORMS)
@given(inner=PRIVATE_IPV4)
def test_listed_ipv6_with_an_embedded_private_address_is_refused(network: str, inner: IPv4Address) -> None:
    carrying = FORMS[network](inner)
    assert str(inner) in str(Networks([network, "::/0"]).refusal_of(carrying))
    assert Networks([network, f"{inner}/32"]).refusal_of(carrying) is None


@pytest.mark.parametrize("network", FORMS)
def test_listed_ipv6_with_an_embedded_public_address_is_allowed(network: str) -> None:
    carrying = FORMS[network](IPv4Address("8.8.4.4"))
    assert Networks([network]).refusal_of(carrying) is None
    assert Networks([]).refusal_of(carrying)


def test_both_addresses_inside_teredo_are_checked() -> None:
    networks = Networks(["2001::/32"])
    private_server = 0x20010000 << 96 | int(IPv4Address("10.0.0.1")) << 64 | 0x08080808 ^ 0xFFFF_FFFF
    assert "10.0.0.1" in str(networks.refusal_of(IPv6Address(private_server)))


def test_invalid_network_is_reported_with_its_pointer() -> None:
    with pytest.raises(InvalidInput) as caught:
        Networks(["10.0.0.0/8", "10.0.0.1/8", "localhost"])
    assert [(flaw.pointer, flaw.value) for flaw in caught.value.flaws] == [
        ("/webhooks/allow_networks/1", "10.0.0.1/8"),
        ("/webhooks/allow_networks/2", "localhost"),
    ]
    assert "host bits" in caught.value.flaws[0].detail
