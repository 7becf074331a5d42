"""The tools that come with Windlass: one table, a line each, and the class that builds them when they are used.

A name is known without importing anything. The first use of a tool imports its module and calls the module's
`build_tools(setup)`, which returns that tool and any others that share something with it, such as connections.

A `Registry` is all tools that an engine knows, by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from windlass.clock import Clock, SystemClock
from windlass.errors import UsageError
from windlass.ports import Health, Tool, ToolLike, as_tool, health_of
from windlass.process import Supervisor
from windlass.settings import Settings

if TYPE_CHECKING:
    from windlass.tools.mcp import McpTools

__all__ = ["TABLE", "BuiltInEntry", "BuiltInTools", "Registry", "ToolSetup"]


CLOSING = 10.0
"""Seconds that a tool has to close."""


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


_FILES = BuiltInEntry("windlass.tools.files.tools", replaceable=False)
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


class ToolSetup(msgspec.Struct, frozen=True):
    """The things that a built-in tool may be built from."""

    settings: Settings
    home: Path
    supervisor: Supervisor
    env: Mapping[str, str]
    """The environment that child processes see."""
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
    """The user's own environment: keys and secrets are looked up in it by the names that the settings give."""
    clock: Clock = msgspec.field(default_factory=SystemClock)


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


def _no_more() -> Sequence[Tool]:
    return ()


class Registry:
    def __init__(
        self,
        tools: Iterable[Tool | ToolLike] = (),
        more: Callable[[], Sequence[Tool]] = _no_more,
        find: Callable[[str], Tool | None] | None = None,
        built_in: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        """`built_in` builds each tool when it is asked for by name. `more` lists tools that come and go while the
        engine is open, and `find` finds one of them by name, or one that is not listed; none takes another's name."""
        self._tools: dict[str, Tool] = {}
        self._built_in, self._more, self._find = built_in, more, find
        for tool in tools:
            self.add(tool)

    def add(self, given: Tool | ToolLike) -> None:
        tool = as_tool(given)
        known = self._tools.get(tool.name)
        if tool.name in self._built_in or (known is not None and known is not tool):
            raise UsageError(
                f"there are two tools named {tool.name!r}",
                advice=("give one of them another name: @tool(name=...)",),
            )
        self._tools[tool.name] = tool

    def extended(self, tools: Iterable[Tool | ToolLike]) -> Registry:
        """These tools and some more, for one execution."""
        return Registry([*self._tools.values(), *tools], self._more, self._find, self._built_in)

    def get(self, name: str) -> Tool | None:
        if (found := self._tools.get(name)) is not None or (found := self._built_in.get(name)) is not None:
            return found
        if self._find is not None:
            return self._find(name)
        return next((tool for tool in self._more() if tool.name == name), None)

    def knows(self, name: str) -> bool:
        """True if there is a tool of that name; a built-in one is not built for that."""
        return name in self._tools or name in self._built_in or self.get(name) is not None

    def is_built_in(self, name: str) -> bool:
        return name in self._built_in

    def nearest(self, name: str) -> str | None:
        import difflib  # for those who made a mistake

        return next(iter(difflib.get_close_matches(name, self.names(), 1)), None)

    def names(self) -> list[str]:
        return sorted({*self._tools, *self._built_in, *(tool.name for tool in self._more())})

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """Everything that the named tool finds wrong with the arguments."""
        return self._known(name).validate(arguments)

    def _known(self, name: str) -> Tool:
        tool = self.get(name)
        if tool is None:
            raise KeyError(name)
        return tool

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        """Names that the tool does not know, and names that it misses."""
        schema = self._known(name).schema
        known = schema.get("properties", {})
        found = [f"argument {key!r} is missing" for key in schema.get("required", ()) if key not in given]
        if schema.get("additionalProperties", True) is not False:
            return found
        for key in given:
            if key not in known:
                import difflib  # for those who made a mistake

                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else "there are: " + ", ".join(known)
                found.append(f"{key!r} is not an argument; {hint}")
        return found

    async def close(self) -> None:
        """Close the tools that were given to it; the built-in ones close themselves."""
        import asyncio  # what only looks tools up runs without it
        import logging

        for tool in self._tools.values():
            try:
                async with asyncio.timeout(CLOSING):
                    await tool.close()
            except Exception as error:  # the tool may be anybody's: what is after it has to be closed, too
                why = f"it took longer than {CLOSING:g} s" if isinstance(error, TimeoutError) else repr(error)
                logging.getLogger("windlass.tools").warning("the tool %s could not be closed: %s", tool.name, why)

    def __iter__(self) -> Iterator[Tool]:
        return iter([tool for name in self.names() if (tool := self.get(name)) is not None])
