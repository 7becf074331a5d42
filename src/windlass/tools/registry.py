"""The tools an engine knows, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from windlass.errors import UsageError
from windlass.ports import Tool, ToolLike, as_tool

__all__ = ["Registry"]


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
        found = self._tools.get(name) or self._built_in.get(name)
        if found is not None:
            return found
        if self._find is not None:
            return self._find(name)
        return next((tool for tool in self._more() if tool.name == name), None)

    def knows(self, name: str) -> bool:
        """True if there is a tool of that name; a built-in one is not built for that."""
        return name in self._tools or name in self._built_in or self.get(name) is not None

    def nearest(self, name: str) -> str | None:
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
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else "there are: " + ", ".join(known)
                found.append(f"{key!r} is not an argument; {hint}")
        return found

    async def close(self) -> None:
        """Close the tools that were given to it; the built-in ones close themselves."""
        for tool in self._tools.values():
            await tool.close()

    def __iter__(self) -> Iterator[Tool]:
        return iter([tool for name in self.names() if (tool := self.get(name)) is not None])
