"""The guard decides what may be reached, by the user's `network` settings and by what is public.

A name is looked up once, every address that comes back is checked, and only those are connected to: a name server that
changes its mind between the check and the connection is not asked again. One address that may not be reached refuses
the whole name, as a public name has no honest reason to lead inside.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from windlass.errors import Category, Failure, ToolError
from windlass.settings import NetworkSettings
from windlass.tools.net.names import Address, Ip, host_of, literal, read_address
from windlass.tools.net.ranges import LOOSE, plain, why_not_public
from windlass.tools.net.rules import Rule, read_rules
from windlass.tools.threads import in_thread

__all__ = ["Guard", "Refused", "Resolver", "Target", "system_resolver"]

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, for a port, as texts."""
MOST_ADDRESSES = 64
LOOK_UP = 15.0
"""Seconds after which a name counts as not found."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that may be reached, and where exactly."""

    url: str
    """As it is to be asked for: written anew from what was checked."""
    host: str
    port: int
    addresses: tuple[str, ...]
    """The only ones to connect to."""


class Refused(ToolError):
    """It may not be reached; asking again changes nothing."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        self.failure = Failure(Category.PERMISSION, message, advice=advice, final=True)


async def system_resolver(host: str, port: int) -> Sequence[str]:
    # In threads of our own: a name server that hangs must not take those that others wait for.
    found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    def __init__(self, network: NetworkSettings | None = None, resolve: Resolver = system_resolver) -> None:
        network = network or NetworkSettings()
        self._allow = read_rules(network.allow, "network.allow")
        self._deny = read_rules(network.deny, "network.deny")
        self._private = read_rules(network.private, "network.private")
        self._resolve = resolve

    async def check(self, url: str) -> Target:
        """Where an address leads, or `Refused`."""
        address = self.read(url)
        return Target(address.url, address.host, address.port, await self.addresses(address.host, address.port))

    def read(self, url: str) -> Address:
        """What an address says, if the lists allow it; nothing is looked up yet."""
        try:
            address = read_address(url)
        except ValueError as error:
            raise ToolError(str(error), category=Category.LOGIC, advice=("correct the url",)) from None
        self._check_lists(address.host, address.port)
        return address

    def allows_host(self, host: str, port: int | None = None) -> bool:
        """What the lists say of a host by its name alone; where it leads is for `check`."""
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
            raise Refused(f"{host} is not reached: network.deny names it")
        if self._allow and not _fit(self._allow, host, port):
            raise Refused(
                f"{host} is not reached: network.allow names the only hosts, and it is none of them",
                f"if it is to be reached, add {host!r} to network.allow in your settings",
            )

    def _check_address(self, host: str, port: int, ip: Ip) -> None:
        here = host if host == str(ip) else f"{host} ({ip})"
        if any(rule.fits_address(ip, port) for rule in self._deny):
            raise Refused(f"{here} is not reached: network.deny names its address")
        kind = why_not_public(ip)
        if kind is None or any(rule.fits_address(ip, port) for rule in self._private):
            return
        if kind in LOOSE and any(rule.name is not None and rule.fits_host(host, port) for rule in self._private):
            return
        opening = f"{host}:{port}" if kind in LOOSE and ":" not in host else str(plain(ip))
        raise Refused(
            f"{here} is not reached: it is {kind}",
            f"if it is yours and is to be reached, add {opening!r} to network.private in your settings",
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
