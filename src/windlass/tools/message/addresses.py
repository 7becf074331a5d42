"""Mail addresses in their plainest form, and whether mail may go to one.

Only `local@domain` in ASCII is an address here. Whatever else RFC 5322 allows (display names, comments, quoted local
parts, several addresses in one text, Unicode that looks like something else) is refused and not interpreted: what one
program takes for one address, the next one on the way may take for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.headerregistry import Address

__all__ = ["Recipients", "address_problem", "sender_of"]

_ATOM = r"[A-Za-z0-9#$&'+/=^_`{|}~-]+"
"""Less than RFC 5322 allows: `%` and `!` tell old mail servers to pass a message on to somewhere else, `=?` begins an
encoded word that could hold a line break, and `*` stands for anybody in the settings."""
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?P<local>{_ATOM}(?:\.{_ATOM})*)@(?P<domain>{_LABEL}(?:\.{_LABEL})*)", re.ASCII)
_ANYBODY = re.compile(rf"\*@(?P<domain>{_LABEL}(?:\.{_LABEL})*)", re.ASCII)
_NAMED = re.compile(r'"?(?P<name>[^<>"@,;:\\()=?]*)"?\s*<(?P<address>[^<>]+)>')
_LONGEST_LOCAL, _LONGEST = 64, 254


def address_problem(text: str) -> str | None:
    """Why it is not an address, None when it is one."""
    if not text.isascii():
        return "has characters outside ASCII: write an international domain in its xn-- form"
    found = _ADDRESS.fullmatch(text)
    if found is None or len(text) > _LONGEST or len(found["local"]) > _LONGEST_LOCAL:
        return "is not one plain mail address: write it like ana@example.com, without a name, comment or second address"
    return None


def sender_of(text: str) -> Address | None:
    """The settings' sender, `a@example.com` or `Name <a@example.com>`; None when it is neither."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        return None
    found = _NAMED.fullmatch(text)
    name, address = (found["name"], found["address"]) if found is not None else ("", text)
    if address_problem(address) is not None:
        return None
    from email.headerregistry import Address  # slow to load, and needed when a mail is sent

    local, _, domain = address.rpartition("@")
    return Address(name.strip(), local, domain)


class Recipients:
    """The user's list of those whom mail may go to."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._exact: set[tuple[str, str]] = set()
        self._domains: set[str] = set()
        self.unusable: list[str] = []
        """Entries that fit nobody, because they are neither `ana@example.com` nor `*@example.com`."""
        for entry in entries:
            if (anybody := _ANYBODY.fullmatch(entry)) is not None:
                self._domains.add(anybody["domain"].lower())
            elif address_problem(entry) is None:
                self._exact.add(_parts(entry))
            else:
                self.unusable.append(entry)

    def allow(self, address: str) -> bool:
        """Exactly as it stands in the list, or anybody of a domain in it. Only a domain's case says nothing: what a
        server makes of `Ana` and `ana+x` is its own affair, so they are not taken for `ana`."""
        if address_problem(address) is not None:
            return False
        local, domain = _parts(address)
        return domain in self._domains or (local, domain) in self._exact


def _parts(address: str) -> tuple[str, str]:
    local, _, domain = address.rpartition("@")
    return local, domain.lower()
