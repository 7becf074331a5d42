"""From the text of a web address to the one host, port and path that everybody reads out of it, or a `ValueError`.

Parsers disagree about unusual addresses (a backslash, an `@`, a `%` in the host, numbers with fewer than four parts),
and attacks use the difference between the one that checks and the one that opens. So unusual addresses are refused, and
the others are written anew from their parts.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

__all__ = ["Address", "Ip", "host_of", "literal", "read_address"]

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_ADDRESS = 8192
_PORTS = {"http": 80, "https": 443}
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<rest>[^#]*)(?:#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    """In ASCII and lower case, without a trailing dot; an IPv6 address without its brackets."""
    port: int
    rest: str
    """Path and query; begins with a slash."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def place(self) -> str:
        """Scheme, host and port, as they stand in an address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def url(self) -> str:
        return self.place + self.rest

    @property
    def shown(self) -> str:
        """For messages: without the query, which may hold keys."""
        path, query, _ = self.rest.partition("?")
        return self.place + path[:200] + ("?…" if query else "")


def read_address(text: str) -> Address:
    if len(text) > MAX_ADDRESS:
        raise ValueError(f"the address is {len(text)} characters long; the limit is {MAX_ADDRESS}")
    if any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in text):
        raise ValueError("the address has a control character or an invalid one in it")
    if text != text.strip():
        raise ValueError("the address begins or ends with a space")
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError("the address is not complete: write it like https://example.com/path")
    scheme = found["scheme"].lower()
    if scheme not in _PORTS:
        raise ValueError(f"{scheme}: addresses are blocked: only http and https are allowed")
    if "@" in found["authority"]:
        raise ValueError("the address has a user or a password in it; give them with auth_env or a header")
    parts = _AUTHORITY.fullmatch(found["authority"])
    if parts is None:
        raise ValueError("the host of the address cannot be read")
    port = int(parts["port"]) if parts["port"] else _PORTS[scheme]
    if not 0 < port < 65536:
        raise ValueError(f"there is no port {port}")
    rest = found["rest"].replace(" ", "%20")
    return Address(scheme, host_of(parts["host"]), port, rest if rest.startswith("/") else f"/{rest}")


def host_of(text: str) -> str:
    """The one spelling of a host that lists are compared with."""
    if text.startswith("["):
        try:
            return str(ipaddress.IPv6Address(text[1:-1] if "%" not in text else ""))
        except ValueError:
            raise ValueError(f"{_cut(text)} is not an IPv6 address") from None
    host = _ascii(text.lower()).removesuffix(".")
    if not host:
        raise ValueError("the address names no host")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{_cut(text)} is not the name of a host")
    if _NUMERIC.fullmatch(labels[-1]):
        # 127.1, 0x7f000001, 017700000001 and 2130706433 all are 127.0.0.1 to some, and something else to others.
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"{_cut(text)} is not an IPv4 address of four decimal numbers") from None
    return host


def literal(host: str) -> Ip | None:
    """The address, when the host is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        import idna
    except ImportError:
        raise ValueError(f"write {_cut(host)} in its ASCII form, which begins with xn--") from None
    try:
        return idna.encode(host).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise ValueError(f"{_cut(host)} is not the name of a host") from None


def _cut(text: str) -> str:
    return ascii(text if len(text) <= 100 else text[:100] + "…")
