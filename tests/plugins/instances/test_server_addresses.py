"""Addresses of servers to which managers may connect."""

import ipaddress

from climate.plugins.instances.server_addresses import checkable
from tests.support.cases import each_case

FLOATING, PREFIX = "203.0.113.0/24", "2001:db8:5::/64"


def checked(addresses: list[str], *networks: str) -> list[str]:
    listed = [ipaddress.ip_network(network) for network in networks]
    return [str(address) for address in checkable(addresses, listed)]


def test_only_addresses_in_listed_networks_are_checked() -> None:
    addresses = ["10.0.0.5", "203.0.113.9", "2001:db8:5::9", "2001:db8:6::9", "203.0.114.1"]
    assert checked(addresses) == []
    assert checked(addresses, FLOATING, PREFIX) == ["203.0.113.9", "2001:db8:5::9"]


@each_case(
    "address, network",
    [
        ("0.0.0.0", "0.0.0.0/0"),  # noqa: S104 - not checked
        ("127.0.0.1", "0.0.0.0/0"),
        ("127.0.0.1", "126.0.0.0/7"),
        ("169.254.169.254", "0.0.0.0/0"),
        ("224.0.0.1", "0.0.0.0/0"),
        ("255.255.255.255", "0.0.0.0/0"),
        *((special, "::/0") for special in ("::", "::1", "::7f00:1", "fe80::1", "ff02::1")),
    ],
)
def test_special_addresses_are_checked_only_if_listed_explicitly(
    address: str, network: str
) -> None:
    own = str(ipaddress.ip_network(address))
    assert checked([address], network) == []
    assert checked([address], network, own) == [address]


@each_case("address", ["::ffff:10.0.0.5", "2002:a00:5::1", "64:ff9b::10.0.0.5", "::ffff:127.0.0.1"])
def test_an_ipv4_address_inside_an_ipv6_address_counts(address: str) -> None:
    assert checked([address], FLOATING, "::/0", "0.0.0.0/1") == (
        [] if "127" in address else [str(ipaddress.ip_address(address))]
    )
    assert checked([address], FLOATING, "::/0") == []


def test_other_texts_repeated_addresses_and_those_after_the_eighth_are_left_out() -> None:
    assert checked(["", "None", "web", "203.0.113.1%eth0", "203.0.113.010"], FLOATING) == []
    many = [f"203.0.113.{number}" for number in range(1, 10)]
    assert checked([many[0], *many], FLOATING) == many[:8]
