"""Tables about tools: their terms, the network, and services (H1, H2, C8)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from windlass.plan.model import Duration
from windlass.plan.quantities import Size
from windlass.ports.terms import Rate
from windlass.settings.tables import Table

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
    return Rate.of(value) if isinstance(value, str) else value


RateText = Annotated[
    Rate,
    BeforeValidator(_rate),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "description": "Uses in a time, like 10/s, 60/m, 100/15m"}),
]


class ToolSettings(Table):
    """One tool, or all that fit a pattern like `http.*`; a key left out keeps the tool's own value."""

    enabled: bool = True
    """False removes the tool for everybody."""
    timeout: Duration | None = None
    """The longest that one use may take."""
    rate: RateText | None = None
    """Uses in a time, by all executions of this home together: `60/m`."""
    concurrent: int | None = Field(default=None, ge=1, le=1000)
    """Uses at the same time, by all executions of this home together."""
    cache: Duration | None = None
    """Seconds that a result may be reused, for tools without an effect."""
    fallback: str | None = None
    """The tool that takes its place when it cannot be used."""
    sensitive: bool | None = None
    """Ask a person before it is used."""


class NetworkSettings(Table):
    """Addresses that `http.*`, `search` and `browser.*` may reach."""

    allow: tuple[str, ...] = ()
    """The only hosts, when there are any: `example.com`, `*.example.com`."""
    deny: tuple[str, ...] = ()
    """Hosts that are never reached."""
    private: tuple[str, ...] = ()
    """Hosts, addresses and networks of your own that may be reached though they are not public: `localhost:8080`,
    `10.0.0.0/8`. All other private, link-local and loopback addresses are refused."""


class SearchProvider(Table):
    kind: Literal["searxng", "brave", "tavily", "duckduckgo"]
    url: str | None = None
    """The server, for searxng; elsewhere the service's own."""
    key_env: str | None = None
    """The environment variable that holds the key."""


class SearchSettings(Table):
    providers: tuple[SearchProvider, ...] = (SearchProvider.model_construct(kind="duckduckgo"),)
    """Asked in this order until one answers."""
    cache: Duration = 3600.0
    """Seconds that an answer may be reused."""


class ServiceSettings(Table):
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

    @model_validator(mode="after")
    def _one_way(self) -> ServiceSettings:
        if (self.url_env is not None) + (self.url is not None) + (self.smtp is not None) != 1:
            raise ValueError("a message service has exactly one of `url`, `url_env` and `smtp`")
        if self.smtp is not None and not self.sender:
            raise ValueError("a mail service needs a `sender`")
        return self


class MessageSettings(Table):
    services: dict[str, ServiceSettings] = {}
    recipients: tuple[str, ...] = ()
    """The only addresses that mail may go to: `ana@example.com`, `*@example.com`. Empty is nobody."""
    rate: RateText = Rate(30, 3600.0)
    largest: Size = 1024 * 1024
    """Bytes of one message, attachments included."""


class McpServerSettings(Table):
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

    @model_validator(mode="after")
    def _one_way(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has exactly one of `command` and `url`")
        return self


class BrowserSettings(Table):
    path: str | None = None
    """The browser, where it is not the one that is found: chromium, google-chrome."""
    pages: int = Field(default=4, ge=1, le=64)
    """Pages that may be open at the same time."""
    timeout: Duration = 30.0
    """The longest that one action may wait."""


class LoadSettings(Table):
    """Bounds of load: beyond them fewer attempts begin, so that running ones can end."""

    disk_floor: Size = 256 * 1024 * 1024
    """Bytes that stay free on the disk of the home: below, nothing new is begun."""
    attempts: int = Field(default=256, ge=1, le=100_000)
    """Attempts that one process has under way at a time, of all its executions; further ones wait for their turn."""
    home: int | None = Field(default=None, ge=1, le=10_000)
    """Attempts that all processes of a home have under way at a time; None is no limit."""
    memory_floor: Size = 128 * 1024 * 1024
    """Bytes of memory that stay free: below, new attempts wait."""
