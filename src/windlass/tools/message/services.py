"""The services of the user's settings, found by name and completed from the environment; and the addresses of mail.

Only `local@domain` in ASCII is a mail address here. Everything else in RFC 5322 (display names, comments, quoted local
parts, several addresses in one text, Unicode that looks like something else) is refused and not interpreted: two
programs on the way may read two different addresses in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from windlass.errors import Category, ToolError
from windlass.settings import MessageSettings
from windlass.settings.tools import ServiceSettings
from windlass.tools.files.failures import nearest

if TYPE_CHECKING:
    from email.headerregistry import Address

__all__ = ["Kind", "MailServer", "MessageService", "Recipients", "Services", "address_problem", "sender_of"]

Kind = Literal["smtp", "url"]
_WORDS = {"smtp": "mail service", "url": "message service with an address"}
_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_WHERE = "in your own settings (windlass doctor says where they are)"


class MessageService(NamedTuple):
    name: str
    settings: ServiceSettings

    @property
    def kind(self) -> Kind:
        return "smtp" if self.settings.smtp is not None else "url"


class MailServer(NamedTuple):
    host: str
    port: int
    user: str | None
    password: str | None
    security: Literal["starttls", "tls", "none"]

    @property
    def local(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Services:
    def __init__(self, settings: MessageSettings, env: Mapping[str, str]) -> None:
        self._known = {name: MessageService(name, found) for name, found in settings.services.items()}
        self._env = env

    def of(self, kind: Kind) -> list[MessageService]:
        return [service for service in self._known.values() if service.kind == kind]

    def problem(self, name: str | None, kind: Kind) -> str | None:
        """Give the reason why there is no such service, None when there is."""
        fitting = [service.name for service in self.of(kind)]
        if name is None:
            if len(fitting) == 1:
                return None
            which = f"say which `service`: {', '.join(fitting)}" if fitting else f"no {_WORDS[kind]} is set up"
            return f"{which}; services are described under [messages.services.NAME] {_WHERE}"
        if name in fitting:
            return None
        if name in self._known:
            tool = "message.email" if kind == "url" else "message.send or message.webhook"
            return f"{name!r} is no {_WORDS[kind]}: it is for {tool}"
        near = nearest(name, fitting)
        hint = f"; did you mean {near!r}?" if near else f"; there are: {', '.join(fitting) or 'none'}"
        return f"there is no {_WORDS[kind]} {name[:80]!r} {_WHERE}{hint}"

    def named(self, name: str | None, kind: Kind) -> MessageService:
        if (problem := self.problem(name, kind)) is not None:
            raise ToolError(problem, category=Category.CONFIGURATION)
        return self._known[name] if name is not None else self.of(kind)[0]

    def url(self, service: MessageService) -> str:
        """Its address, which may hold secrets: never to be shown."""
        if service.settings.url_env is not None:
            return self.secret(service, service.settings.url_env)
        return service.settings.url or ""

    def mail_server(self, service: MessageService) -> MailServer:
        """The mail server, with our login."""
        told = service.settings
        wrong = ToolError(
            f"message service {service.name!r}: smtp = {told.smtp!r} is not HOST:PORT",
            category=Category.CONFIGURATION,
            advice=(f"write it like mail.example.com:587 {_WHERE}",),
        )
        try:
            place = urlsplit(f"//{told.smtp}")
            host, port = place.hostname, place.port
        except ValueError:
            raise wrong from None
        if not host or place.path or place.query or place.username:
            raise wrong
        user = self.secret(service, told.user_env) if told.user_env else None
        password = self.secret(service, told.password_env) if told.password_env else None
        return MailServer(host, port or _PORTS[told.security], user, password, told.security)

    def secret(self, service: MessageService, variable: str) -> str:
        value = self._env.get(variable, "").strip()
        if not value:
            raise ToolError(
                f"message service {service.name!r} needs the environment variable {variable}, which is not set",
                category=Category.CONFIGURATION,
                advice=(f"export {variable}=…, then try again",),
            )
        return value

    def secrets(self) -> dict[str, str]:
        """Values that must be in no message, by variable, also where its name does not look secret."""
        variables = {
            variable
            for service in self._known.values()
            for variable in (service.settings.url_env, service.settings.password_env)
            if variable is not None
        }
        return {variable: value for variable in variables if (value := self._env.get(variable, "").strip())}


_ATOM = r"[A-Za-z0-9#$&'+/=^_`{|}~-]+"
"""Less than RFC 5322 allows: `%` and `!` tell old mail servers to pass a message on to somewhere else, `=?` begins an
encoded word that could hold a line break, and `*` stands for anybody in the settings."""
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?P<local>{_ATOM}(?:\.{_ATOM})*)@(?P<domain>{_LABEL}(?:\.{_LABEL})*)", re.ASCII)
_ANYBODY = re.compile(rf"\*@(?P<domain>{_LABEL}(?:\.{_LABEL})*)", re.ASCII)
_NAMED = re.compile(r'"?(?P<name>[^<>"@,;:\\()=?]*)"?\s*<(?P<address>[^<>]+)>')
_LONGEST_LOCAL, _LONGEST = 64, 254


def address_problem(text: str) -> str | None:
    """Give the reason why it is not an address, None when it is one."""
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
        """Tell if the address or its domain is in the list. Only a domain's case is ignored: servers differ about
        `Ana` and `ana+x`, so they are not taken for `ana`."""
        if address_problem(address) is not None:
            return False
        local, domain = _parts(address)
        return domain in self._domains or (local, domain) in self._exact


def _parts(address: str) -> tuple[str, str]:
    local, _, domain = address.rpartition("@")
    return local, domain.lower()
