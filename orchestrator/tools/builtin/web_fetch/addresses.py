"""Which addresses belong to the public internet, and which to this machine, its networks, or nobody."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

from orchestrator.tools.texts import texts

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7", "100.64.0.0/10")
"""What `allow_private=True` opens: this machine, and networks that are somebody's own."""
# From IANA's lists of special addresses; newer Pythons know some of them by themselves, older ones do not.
_SPECIAL = (
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
    "192.88.99.0/24", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4", "::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    "5f00::/16", "fe80::/10", "fec0::/10", "ff00::/8",
)  # fmt: skip
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that was ever given to anybody. What is outside of it may be translated to IPv4 on the way, such as
`::ffff:0:127.0.0.1` (SIIT), or is nothing; Python takes it for public."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Networks as objects: `10.0.0.0/8`, or one address.

    Raises:
        ValueError: one of them is none.
        TypeError: it is one text, and no list of them.
    """
    return tuple(ipaddress.ip_network(one) for one in texts("allow_private", given))


OWN = networks(_PRIVATE)
_CLOSED = (*OWN, *networks(_SPECIAL))


def inner(address: Address) -> Address:
    """The IPv4 address that stands in an IPv6 one which only carries it; else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:  # how networks without IPv4 reach all that has no other
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether an address is somebody's on the public internet."""
    address = inner(address)
    if not address.is_global or address.is_multicast or any(address in one for one in _CLOSED):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    # Tunnels in which an IPv4 address is hidden: nobody's site is only there.
    return not (isinstance(address, ipaddress.IPv6Address) and (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP)


def is_within(address: Address, allowed: Iterable[Network]) -> bool:
    """Whether an address is in one of some networks."""
    address = inner(address)
    return any(address in one for one in allowed)
