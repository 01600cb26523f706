"""Checks of addresses, both as written and as resolved."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

import anyio

from orchestrator.errors import ToolError
from orchestrator.tools.builtin import texts

if TYPE_CHECKING:
    from httpx2 import URL


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7", "100.64.0.0/10")
"""Networks that `allow_private=True` allows: this machine and private networks."""
# From IANA's lists of special addresses; older Pythons lack some of them.
_SPECIAL = (
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
    "192.88.99.0/24", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4", "::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    "5f00::/16", "fe80::/10", "fec0::/10", "ff00::/8",
)  # fmt: skip
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All IPv6 addresses allocated so far. Others may be translated to IPv4 on the way, such as `::ffff:0:127.0.0.1`
(SIIT), or are unused, although Python treats them as public."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks: `10.0.0.0/8`, or a single address.

    Raises:
        ValueError: an entry is not a valid network.
        TypeError: a string is given instead of a list.
    """
    return tuple(ipaddress.ip_network(one) for one in texts("allow_private", given))


OWN = networks(_PRIVATE)
_CLOSED = (*OWN, *networks(_SPECIAL))


def inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds; else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:  # how networks without IPv4 reach hosts that have only IPv4
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Return True if an address is on the public internet."""
    address = inner(address)
    if not address.is_global or address.is_multicast or any(address in one for one in _CLOSED):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    # Tunnels that embed an IPv4 address: no site is reachable only through them.
    return not (isinstance(address, ipaddress.IPv6Address) and (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP)


def is_within(address: Address, allowed: Iterable[Network]) -> bool:
    """Return True if an address is in one of the networks."""
    address = inner(address)
    return any(address in one for one in allowed)


Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host and port."""
_PORTS = {"http": 80, "https": 443}
_LONG = 4000
_USERINFO = re.compile(r"^([^/\\?#]*[/\\]{2,})[^/?#]*@")


async def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses of a name, from this machine's resolver.

    Raises:
        OSError: the name has no addresses.
    """
    found = await anyio.getaddrinfo(host, port, type=1)  # SOCK_STREAM
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    """Refuses forbidden addresses. Names are checked by the addresses that they resolve to, each time anew."""

    def __init__(
        self,
        *,
        private: bool | Sequence[str] = False,
        hosts: Sequence[str] | None = None,
        ports: Collection[int] | None = (80, 443),
        resolve: Resolver = system_resolver,
    ) -> None:
        """
        Raises:
            ValueError: an entry is not a valid network.
            TypeError: a string is given instead of a list.
        """
        self._allowed: tuple[Network, ...] = (
            (OWN if private else ()) if isinstance(private, bool) else networks(private)
        )
        # Lower case, but not casefolded, which would turn a name with 'ß' into another host.
        self._hosts = None if hosts is None else tuple(host.lower().rstrip(".") for host in texts("hosts", hosts))
        self._ports = None if ports is None else frozenset(ports)
        self._resolve = resolve

    def url(self, given: str, before: URL | None = None) -> URL:
        """Return an address if it is allowed, as far as the address alone shows.

        Args:
            given: the address as it was written.
            before: the address that led to it, which it may be relative to.

        Raises:
            ToolError: the address is not allowed, or not valid.
        """
        import httpx2

        if len(given) > _LONG:
            raise ToolError(f"the address is longer than {_LONG} characters")
        said = shown_address(given)
        if not given.isprintable() or re.search(r"[\x00-\x20\x7f\\]", given):
            raise ToolError(f"{said} contains spaces, backslashes or control characters: encode them, such as %20")
        try:
            found = httpx2.URL(given) if before is None else before.join(given)
        except (httpx2.InvalidURL, ValueError, TypeError, UnicodeError) as error:
            raise ToolError(f"{said} is not a web address: {error}") from None
        if found.scheme not in _PORTS:
            raise ToolError(f"{said}: only http and https are fetched; write https://...")
        if before is not None and before.scheme == "https" != found.scheme:
            raise ToolError(f"{said}: the page redirects from https to http, which is not followed")
        if found.userinfo or "@" in _authority(given):
            raise ToolError(f"{said} has a user name or password in it: leave them out")
        host = found.host
        if not host or "%" in host or "%" in _authority(given):
            raise ToolError(f"{said} has no host that could be reached")
        _refuse_odd(host, said)
        if self._hosts is not None and not any(fnmatchcase(host.rstrip("."), one) for one in self._hosts):
            raise ToolError(f"{said}: the host {host!r} is not one of those that are allowed: {', '.join(self._hosts)}")
        port = _PORTS[found.scheme] if found.port is None else found.port
        if not 0 < port < 65536 or (self._ports is not None and port not in self._ports):
            allowed = ", ".join(map(str, sorted(self._ports or ()))) or "1 to 65535"
            raise ToolError(f"{said}: port {port} is not one of those that are allowed: {allowed}")
        return found.copy_with(fragment=None)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses to connect to. If one of them is not allowed, all are refused: a name of the public
        internet has no private address.

        Raises:
            ToolError: there is no address, or one is not allowed.
        """
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"the host {host!r} is not known: {getattr(error, 'strerror', None) or error}") from None
        if not found:
            raise ToolError(f"the host {host!r} has no address")
        for one in found:
            try:
                address = ipaddress.ip_address(one)
            except ValueError:
                raise ToolError(f"the host {host!r} has the address {one!r}, which is not valid") from None
            if not is_public(address) and not is_within(address, self._allowed):
                raise ToolError(
                    f"the host {host!r} is at {one}, which is not on the public internet; "
                    "allow_private= allows networks"
                )
        return list(found)


def shown_address(given: str) -> str:
    """Return an address for use in an error: short, without terminal control characters, and without a user name or
    password, which errors would pass on to models and journals."""
    shown = _USERINFO.sub(r"\1...@", given)
    return ascii(shown if len(shown) <= 300 else shown[:300] + "...")


def _authority(given: str) -> str:
    found = re.match(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)", given)
    return found[1] if found else ""


def _refuse_odd(host: str, said: str) -> None:
    """Refuse numbers that systems read as addresses in unusual notations: 2130706433, 0x7f.1, 0177.0.0.1, 127.1."""
    if ":" in host:
        return
    last = host.rstrip(".").rpartition(".")[2].casefold()
    if not re.fullmatch(r"[0-9]+|0x[0-9a-f]*", last):
        return
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise ToolError(
            f"{said}: {host!r} is not an IPv4 address in its usual form, four numbers and three dots"
        ) from None
