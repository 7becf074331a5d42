"""The tools that come with Windlass: one table, a line each, and the class that builds them when they are used.

A name is known without importing anything. The first use of a tool imports its module and calls the module's
`build_tools(setup)`, which returns that tool and any others that share something with it, such as connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windlass.clock import Clock, SystemClock
from windlass.ports import Health, Tool, health_of
from windlass.process import Supervisor
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.tools.mcp import McpTools

__all__ = ["TABLE", "BuiltInEntry", "BuiltInTools", "ToolSetup"]


def _always(settings: Settings) -> bool:
    return True


class BuiltInEntry(NamedTuple):
    """The module of a built-in tool, and when there is one."""

    module: str
    """The module whose `build_tools` builds it."""
    replaceable: bool = True
    """A tool of the same name that is given to `windlass.open` takes its place; otherwise that is an error."""
    available: Callable[[Settings], bool] = _always
    """False where the settings leave it without anything to work with."""


_FILES = BuiltInEntry("windlass.tools.files", replaceable=False)
_HTTP = BuiltInEntry("windlass.tools.http")
_MESSAGE = BuiltInEntry("windlass.tools.message")
_BROWSER = BuiltInEntry("windlass.tools.browser")

TABLE: dict[str, BuiltInEntry] = {
    "shell": BuiltInEntry("windlass.tools.shell", replaceable=False),
    "files.read": _FILES,
    "files.list": _FILES,
    "files.search": _FILES,
    "files.write": _FILES,
    "files.edit": _FILES,
    "files.patch": _FILES,
    "files.copy": _FILES,
    "files.move": _FILES,
    "files.delete": _FILES,
    "files.apply": _FILES,
    "http.get": _HTTP,
    "http.head": _HTTP,
    "http.post": _HTTP,
    "http.put": _HTTP,
    "http.patch": _HTTP,
    "http.delete": _HTTP,
    "http.download": _HTTP,
    "search": BuiltInEntry("windlass.tools.search", available=lambda settings: bool(settings.search.providers)),
    "message.email": _MESSAGE,
    "message.send": _MESSAGE,
    "message.webhook": _MESSAGE,
    "browser.open": _BROWSER,
    "browser.click": _BROWSER,
    "browser.fill": _BROWSER,
    "browser.select": _BROWSER,
    "browser.press": _BROWSER,
    "browser.wait": _BROWSER,
    "browser.text": _BROWSER,
    "browser.tables": _BROWSER,
    "browser.links": _BROWSER,
    "browser.screenshot": _BROWSER,
    "browser.pdf": _BROWSER,
    "browser.download": _BROWSER,
    "browser.close": _BROWSER,
}
"""Every built-in tool by name. To add one, add its module and a line here."""


@dataclass(frozen=True)
class ToolSetup:
    """The things that a built-in tool may be built from."""

    settings: Settings
    home: Path
    supervisor: Supervisor
    env: Mapping[str, str]
    """The environment that child processes see."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The user's own environment: keys and secrets are looked up in it by the names that the settings give."""
    clock: Clock = field(default_factory=SystemClock)


class BuiltInTools(Mapping[str, Tool]):
    """The built-in tools by name, each built when it is first asked for; and the tools of MCP servers."""

    def __init__(
        self,
        setup: ToolSetup,
        trusted: Callable[[Path], bool],
        enabled: Callable[[str], bool] = lambda name: True,
        replaced: Container[str] = (),
    ) -> None:
        """`trusted` decides if a folder's own MCP servers count; tools that are not `enabled`, or are `replaced` by a
        caller's own, are left out."""
        self._setup, self._trusted = setup, trusted
        self._entries = {
            name: entry
            for name, entry in TABLE.items()
            if entry.available(setup.settings) and enabled(name) and name not in replaced
        }
        self._built: dict[str, dict[str, Tool]] = {}
        self._folder = Path.cwd()

    def __getitem__(self, name: str) -> Tool:
        module = self._entries[name].module
        if module not in self._built:
            self._built[module] = {tool.name: tool for tool in import_module(module).build_tools(self._setup)}
        return self._built[module][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    # -- MCP servers ---------------------------------------------------------------------------------

    @cached_property
    def mcp(self) -> McpTools:
        """The MCP servers that the settings and the files of other programs name. None is started here."""
        from windlass.tools.mcp import McpTools, find_servers
        from windlass.tools.net import AddressGuard, open_client

        setup = self._setup
        servers, problems = find_servers(
            setup.settings.mcp, self._folder, env=setup.env, environ=setup.environ, trusted=self._trusted
        )
        guard = AddressGuard(setup.settings.network)
        return McpTools(
            servers,
            setup.supervisor,
            setup.env,
            setup.clock,
            folder=self._folder,
            environ=setup.environ,
            cache=setup.home / "mcp-tools.json" if setup.home.is_dir() else None,
            problems=problems,
            http=lambda server: open_client(guard),
        )

    def more(self) -> Sequence[Tool]:
        """Tools of MCP servers, as far as they are known."""
        return self.mcp()

    def find(self, name: str) -> Tool | None:
        """The tool of an MCP server by its name, also of one that was not asked for its tools yet; else None."""
        return self.mcp.find(name) if name.startswith("mcp.") else None

    def problems(self) -> list[str]:
        return self.mcp.problems()

    # -- all of them ---------------------------------------------------------------------------------

    async def check(self) -> dict[str, Health]:
        """The health of each tool and MCP server that has one, by name; starts what has to be started."""
        found = {name: health for name, tool in self.items() if (health := await health_of(tool)) is not None}
        return found | {f"mcp.{name}": health for name, health in (await self.mcp.check()).items()}

    async def close(self) -> None:
        """Close what was built."""
        if "mcp" in self.__dict__:
            await self.mcp.close()
        for group in self._built.values():
            for tool in group.values():
                await tool.close()
