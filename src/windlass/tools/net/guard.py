"""Decide what may be reached: by the user's `network` settings (`Rule`), and by what is public (`why_not_public`).

A name is looked up once, every address that comes back is checked, and only those are connected to: a name server that
changes its mind between the check and the connection is not asked again. One address that may not be reached refuses
the whole name, as a public name has no honest reason to lead inside.

The ranges are those of IANA's registries of special addresses; Python's own `is_global` differs between its releases.
IPv6 is public by an allow-list (global unicast), IPv4 by a deny-list. Metadata services of clouds hand out credentials
to anybody who asks from inside.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from windlass.errors import Category, Failure, ToolError, UsageError
from windlass.settings import NetworkSettings
from windlass.tools.net.names import Address, Ip, host_of, literal, read_address
from windlass.tools.threads import in_thread

__all__ = ["AddressGuard", "AddressRefused", "NetworkTarget", "Resolver", "plain", "system_resolver", "why_not_public"]

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port, as texts."""
MOST_ADDRESSES = 64
SETTINGS = "~/.config/windlass/config.toml"
"""The file of the user's own settings: a project's cannot open anything."""
LOOK_UP = 15.0
"""Seconds after which a name counts as not found."""


@dataclass(frozen=True, slots=True)
class NetworkTarget:
    """Something that may be reached, and where exactly."""

    url: str
    """As it is to be asked for: written anew from what was checked."""
    host: str
    port: int
    addresses: tuple[str, ...]
    """The only ones to connect to."""


class AddressRefused(ToolError):
    """It may not be reached; asking again changes nothing."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        self.failure = Failure(Category.PERMISSION, message, advice=advice, final=True)


async def system_resolver(host: str, port: int) -> Sequence[str]:
    # In threads of our own: a name server that hangs must not take those that others wait for.
    found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class AddressGuard:
    def __init__(self, network: NetworkSettings | None = None, resolve: Resolver = system_resolver) -> None:
        network = network or NetworkSettings()
        self._allow = read_rules(network.allow, "network.allow")
        self._deny = read_rules(network.deny, "network.deny")
        self._private = read_rules(network.private, "network.private")
        self._resolve = resolve

    async def check(self, url: str) -> NetworkTarget:
        """Look an address up; raises `AddressRefused` if it may not be reached."""
        address = self.read(url)
        return NetworkTarget(address.url, address.host, address.port, await self.addresses(address.host, address.port))

    def read(self, url: str) -> Address:
        """Read an address, if the lists allow it; nothing is looked up yet."""
        try:
            address = read_address(url)
        except ValueError as error:
            raise ToolError(str(error), category=Category.LOGIC, advice=("correct the url",)) from None
        self._check_lists(address.host, address.port)
        return address

    def allows_host(self, host: str, port: int | None = None) -> bool:
        """True if the lists allow a host by its name alone; `check` looks at its addresses."""
        try:
            name = host_of(f"[{host}]" if ":" in host and not host.startswith("[") else host)
        except ValueError:
            return False
        denied = any(rule.fits_host(name, port) for rule in self._deny if port is not None or rule.port is None)
        return not denied and (not self._allow or _fit(self._allow, name, port))

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Look a host up, once, and check all that it leads to. `host` is as `Address.host` spells it."""
        self._check_lists(host, port)
        found = literal(host)
        ips = [found] if found is not None else await self._look_up(host, port)
        for ip in ips:
            self._check_address(host, port, ip)
        return tuple(dict.fromkeys(str(plain(ip)) for ip in ips))

    def _check_lists(self, host: str, port: int) -> None:
        if _fit(self._deny, host, port):
            raise AddressRefused(f"Blocked: {host} is in network.deny")
        if self._allow and not _fit(self._allow, host, port):
            raise AddressRefused(
                f"Blocked: {host} is not in network.allow",
                f"to allow it, add {host!r} to network.allow in {SETTINGS}",
            )

    def _check_address(self, host: str, port: int, ip: Ip) -> None:
        here = host if host == str(ip) else f"{host} ({ip})"
        if any(rule.fits_address(ip, port) for rule in self._deny):
            raise AddressRefused(f"Blocked: the address of {here} is in network.deny")
        kind = why_not_public(ip)
        if kind is None or any(rule.fits_address(ip, port) for rule in self._private):
            return
        if kind in LOOSE and any(rule.name is not None and rule.fits_host(host, port) for rule in self._private):
            return
        opening = f"{host}:{port}" if kind in LOOSE and ":" not in host else str(plain(ip))
        raise AddressRefused(
            f"Blocked: {here} is {kind}",
            f"if it is yours, allow it: add {opening!r} to network.private in {SETTINGS}",
        )

    async def _look_up(self, host: str, port: int) -> list[Ip]:
        try:
            async with asyncio.timeout(LOOK_UP):
                found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:  # a timeout is an OSError, too
            why = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
            raise _not_found(host, str(why)) from error
        # A scope (fe80::1%eth0) says through which device; what kind of address it is stands before it.
        ips = [ip for text in found[:MOST_ADDRESSES] if (ip := literal(text.partition("%")[0])) is not None]
        if not ips:
            raise _not_found(host, "it has no address")
        return ips


def _fit(rules: Sequence[Rule], host: str, port: int | None) -> bool:
    return any(rule.fits_host(host, port) for rule in rules)


def _not_found(host: str, why: str) -> ToolError:
    return ToolError(
        f"the host {host} was not found: {why}",
        category=Category.TRANSIENT,
        advice=("check the spelling of the host, and whether this machine is online",),
    )


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
"""Kinds that a name in `network.private` opens; any other kind has to be named by its address."""


def plain(ip: Ip) -> Ip:
    """The address that is connected to: an IPv4 address in the clothes of an IPv6 one is an IPv4 address."""
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped if mapped is not None else ip


def why_not_public(ip: Ip) -> str | None:
    """The kind of an address that is not public, else None."""
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


_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Rule:
    name: str | None = None
    """A host's name; None when it is an address or a network."""
    beneath: bool = False
    """`*.name`: the names beneath it, and not itself."""
    network: Network | None = None
    port: int | None = None

    def fits_host(self, host: str, port: int | None) -> bool:
        """True if the rule names this host. Without a port, any of its ports will do."""
        if None not in (self.port, port) and self.port != port:
            return False
        if self.name is None:
            found = literal(host)
            return found is not None and self._holds(found)
        return host.endswith(f".{self.name}") if self.beneath else host == self.name

    def fits_address(self, ip: Ip, port: int) -> bool:
        """True if the rule names this address by its number."""
        return self.port in (None, port) and self._holds(ip)

    def _holds(self, ip: Ip) -> bool:
        ip = plain(ip)
        return self.network is not None and self.network.version == ip.version and ip in self.network


def read_rules(entries: Iterable[str], setting: str) -> tuple[Rule, ...]:
    return tuple(_read(entry.strip(), setting) for entry in entries)


def _read(entry: str, setting: str) -> Rule:
    try:
        if "/" in entry:
            return Rule(network=ipaddress.ip_network(entry.strip("[]"), strict=False))
        if (found := literal(entry.strip("[]"))) is not None:
            return Rule(network=ipaddress.ip_network(plain(found)))
        with_port = _PORT.fullmatch(entry)
        host, port = (with_port["host"], int(with_port["port"])) if with_port else (entry, None)
        beneath = host.startswith("*.")
        name = host_of(host.removeprefix("*."))
        address = literal(name)
        if port is not None and not 0 < port < 65536:
            raise ValueError(f"there is no port {port}")
        if address is None:
            return Rule(name=name, beneath=beneath, port=port)
        if beneath:
            raise ValueError("an address has no hosts below it")
        return Rule(network=ipaddress.ip_network(plain(address)), port=port)
    except ValueError as error:
        raise UsageError(
            f"{setting}: {entry!r} is not a host, an address or a network: {error}",
            advice=("write it like example.com, *.example.com, localhost:8080, 10.0.0.5 or 10.0.0.0/8",),
        ) from None
