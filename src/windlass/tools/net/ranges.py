"""Which addresses are public, and what the others are: after IANA's registries of special addresses.

Python's own `is_global` differs between its releases, so the ranges stand here. IPv6 is told by what it may be (global
unicast), IPv4 by what it may not. Metadata services of clouds hand out credentials to whoever asks from inside.
"""

from __future__ import annotations

import ipaddress

from windlass.tools.net.names import Ip

__all__ = ["LOOSE", "plain", "why_not_public"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_KINDS = {
    "a cloud's metadata service": "169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.192 "
    "fd00:ec2::254 fd00:ec2::23 fd20:ce::254",
    "a loopback address": "127.0.0.0/8 ::1",
    "a private address": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
    "a link-local address": "169.254.0.0/16 fe80::/10",
    "an address of a carrier's own network": "100.64.0.0/10",
    "a multicast address": "224.0.0.0/4 ff00::/8",
    "the unspecified address": "0.0.0.0/8 ::",
    "an address that leads to another network": "192.88.99.0/24 2001::/32 2002::/16 64:ff9b:1::/48",
    "a reserved address": "192.0.0.0/24 192.0.2.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 "
    "2001::/23 2001:db8::/32 3fff::/20",
}
"""The first that holds an address names it."""
_RANGES: list[tuple[Network, str]] = [
    (ipaddress.ip_network(text), kind) for kind, texts in _KINDS.items() for text in texts.split()
]
_GLOBAL = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
LOOSE = frozenset({"a loopback address", "a private address", "an address of a carrier's own network"})
"""What a name in `network.private` may turn out to be; anything stranger has to be named by its address."""


def plain(ip: Ip) -> Ip:
    """The address that is connected to: an IPv4 address in the clothes of an IPv6 one is an IPv4 address."""
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped if mapped is not None else ip


def why_not_public(ip: Ip) -> str | None:
    """What an address is, if not a public one."""
    ip = plain(ip)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ipaddress.IPv6Address(int(ip))  # without its scope, which belongs to no network
        if ip in _NAT64:
            # Networks without IPv4 reach all of it through these: what counts is where that leads.
            return why_not_public(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    for network, kind in _RANGES:
        if ip.version == network.version and ip in network:
            return kind
    if isinstance(ip, ipaddress.IPv6Address) and ip not in _GLOBAL:
        return "a reserved address"
    return None
