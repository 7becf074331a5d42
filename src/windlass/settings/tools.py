"""Tables about tools: their terms, the network, and services (H1, H2, C8)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from windlass.plan.quantities import Duration, Size
from windlass.rate import Rate
from windlass.values import Before, CheckedValue, field

__all__ = [
    "BrowserSettings",
    "LoadSettings",
    "McpServerSettings",
    "MessageSettings",
    "NetworkSettings",
    "SearchProvider",
    "SearchSettings",
    "ServiceSettings",
    "ToolSettings",
]


def _rate(value: Any) -> Any:
    if isinstance(value, str):
        return Rate.of(value)
    if not isinstance(value, Rate):
        raise ValueError("a rate is text like 10/s, 60/m, 100/15m")
    return value


RateText = Annotated[
    Rate,
    Before(_rate, {"type": "string", "description": "Uses in a time, like 10/s, 60/m, 100/15m"}, serialize=str),
]


class ToolSettings(CheckedValue):
    """One tool, or all that fit a pattern like `http.*`; a key left out keeps the tool's own value."""

    enabled: bool = True
    """False removes the tool for everybody."""
    timeout: Duration | None = None
    """The longest that one use may take."""
    rate: RateText | None = None
    """Uses in a time, by all executions of this home together: `60/m`."""
    concurrent: int | None = field(default=None, ge=1, le=1000)
    """Uses at the same time, by all executions of this home together."""
    cache: Duration | None = None
    """Seconds that a result may be reused, for tools without an effect."""
    fallback: str | None = None
    """The tool that takes its place when it cannot be used."""
    sensitive: bool | None = None
    """Ask a person before it is used."""


class NetworkSettings(CheckedValue):
    """Addresses that `http.*`, `search` and `browser.*` may reach."""

    allow: tuple[str, ...] = ()
    """The only hosts, when there are any: `example.com`, `*.example.com`."""
    deny: tuple[str, ...] = ()
    """Hosts that are never reached."""
    private: tuple[str, ...] = ()
    """Hosts, addresses and networks of your own that may be reached though they are not public: `localhost:8080`,
    `10.0.0.0/8`. All other private, link-local and loopback addresses are refused."""


class SearchProvider(CheckedValue):
    kind: Literal["searxng", "brave", "tavily", "duckduckgo"]
    url: str | None = None
    """The server, for searxng; elsewhere the service's own."""
    key_env: str | None = None
    """The environment variable that holds the key."""


class SearchSettings(CheckedValue):
    providers: tuple[SearchProvider, ...] = (SearchProvider.model_construct(kind="duckduckgo"),)
    """Asked in this order until one answers."""
    cache: Duration = 3600.0
    """Seconds that an answer may be reused."""


class ServiceSettings(CheckedValue):
    """One way to send messages."""

    url_env: str | None = None
    """The environment variable that holds the service's address, secrets included (apprise, webhook)."""
    url: str | None = None
    """The address itself, where it is no secret."""
    smtp: str | None = None
    """`host:port` of a mail server; then the following hold, too."""
    sender: str | None = None
    user_env: str | None = None
    password_env: str | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"

    def _after(self) -> ServiceSettings:
        if (self.url_env is not None) + (self.url is not None) + (self.smtp is not None) != 1:
            raise ValueError("a message service has exactly one of `url`, `url_env` and `smtp`")
        if self.smtp is not None and not self.sender:
            raise ValueError("a mail service needs a `sender`")
        return self


class MessageSettings(CheckedValue):
    services: dict[str, ServiceSettings] = {}
    recipients: tuple[str, ...] = ()
    """The only addresses that mail may go to: `ana@example.com`, `*@example.com`. Empty is nobody."""
    rate: RateText = Rate(30, 3600.0)
    largest: Size = 1024 * 1024
    """Bytes of one message, attachments included."""


class McpServerSettings(CheckedValue):
    """One MCP server whose tools can be used, as `mcp.NAME.TOOL`."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    env_allow: tuple[str, ...] = ()
    """Variables of your environment that it gets to see, besides PATH, HOME and the like."""
    url: str | None = None
    """Instead of a command: the address of a streamable HTTP server."""
    headers_env: dict[str, str] = {}
    """Headers by the environment variables that hold them: `{Authorization = "GITHUB_AUTH"}`."""
    timeout: Duration = 60.0

    def _after(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has exactly one of `command` and `url`")
        return self


class BrowserSettings(CheckedValue):
    path: str | None = None
    """The browser, where it is not the one that is found: chromium-headless-shell, chromium, google-chrome."""
    pages: int = field(default=4, ge=1, le=64)
    """Pages that may be open at the same time."""
    timeout: Duration = 30.0
    """The longest that one action may wait."""


class LoadSettings(CheckedValue):
    """Bounds of load: beyond them fewer attempts begin, so that running ones can end."""

    disk_floor: Size = 256 * 1024 * 1024
    """Bytes that stay free on the disk of the home: below, nothing new is begun."""
    attempts: int = field(default=256, ge=1, le=100_000)
    """Attempts that one process has under way at a time, of all its executions; further ones wait for their turn."""
    home: int | None = field(default=None, ge=1, le=10_000)
    """Attempts that all processes of a home have under way at a time; None is no limit."""
    memory_floor: Size = 128 * 1024 * 1024
    """Bytes of memory that stay free: below, new attempts wait."""
