"""Addresses of servers to which managers may connect, to check whether the servers are ready. Pure.

Users choose the addresses of their servers, and learn whether a port is open. So managers connect
only to addresses in networks that the operator lists. Special addresses, such as loopback, are
excluded even if a network such as 0.0.0.0/0 contains them; the operator must list them explicitly.
"""

import ipaddress
from collections.abc import Iterable, Sequence

from climate.core.notifications.subscription import Address, Network, effective_address

# The maximum number of addresses of one server to which a manager connects.
_MOST_ADDRESSES = 8
_SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this machine
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, with the metadata services of clouds
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, with the broadcast address
        "::/96",  # unspecified, loopback, and IPv4-compatible addresses (deprecated)
        "fe80::/10",  # link-local
        "fec0::/10",  # site-local (deprecated)
        "ff00::/8",  # multicast
    )
)


def checkable(texts: Iterable[str], networks: Sequence[Network]) -> list[Address]:
    """Return those addresses of one server to which a manager may connect, at most 8.

    ``texts`` are the addresses as the cloud reports them; texts in another form are left out.
    ``networks`` are the networks that the operator lists.
    """
    addresses = (_address(text) for text in dict.fromkeys(texts))
    allowed = [each for each in addresses if each is not None and _is_allowed(each, networks)]
    return allowed[:_MOST_ADDRESSES]


def _address(text: str) -> Address | None:
    """Return the address in a text; None if there is none, or if the text also names a zone."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_allowed(address: Address, networks: Sequence[Network]) -> bool:
    """Return whether a network contains the address, and lists its special range explicitly.

    The IPv4 address counts that an IPv6 address contains.
    """
    effective = effective_address(address)
    special = [each for each in _SPECIAL if effective in each]
    return any(
        effective in network and all(_is_within(network, each) for each in special)
        for network in networks
    )


def _is_within(network: Network, outer: Network) -> bool:
    inside = network.network_address in outer and network.broadcast_address in outer
    return network.version == outer.version and inside
