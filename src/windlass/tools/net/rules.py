"""One entry of `network.allow`, `network.deny` or `network.private`: a host, `*.host`, an address or a network."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from windlass.errors import UsageError
from windlass.tools.net.names import Ip, host_of, literal
from windlass.tools.net.ranges import Network, plain

__all__ = ["Rule", "read_rules"]

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
        """Whether it speaks of this host. Without a port, any of its ports will do."""
        if None not in (self.port, port) and self.port != port:
            return False
        if self.name is None:
            found = literal(host)
            return found is not None and self._holds(found)
        return host.endswith(f".{self.name}") if self.beneath else host == self.name

    def fits_address(self, ip: Ip, port: int) -> bool:
        """Whether it speaks of this address by its number."""
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
            raise ValueError("nothing is beneath an address")
        return Rule(network=ipaddress.ip_network(plain(address)), port=port)
    except ValueError as error:
        raise UsageError(
            f"{setting}: {entry!r} is not a host, an address or a network: {error}",
            advice=("write it like example.com, *.example.com, localhost:8080, 10.0.0.5 or 10.0.0.0/8",),
        ) from None
