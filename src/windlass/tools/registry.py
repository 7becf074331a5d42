"""The tools an engine knows, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.errors import UsageError
from windlass.ports import Tool

__all__ = ["Registry"]


class Registry:
    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        if tool.name in self._tools and self._tools[tool.name] is not tool:
            raise UsageError(
                f"there are two tools named {tool.name!r}",
                advice=("give one of them another name: @tool(name=...)",),
            )
        self._tools[tool.name] = tool

    def extended(self, tools: Iterable[Tool]) -> Registry:
        """These tools and some more, for one execution."""
        return Registry([*self._tools.values(), *tools])

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def nearest(self, name: str) -> str | None:
        return next(iter(difflib.get_close_matches(name, self._tools, 1)), None)

    def names(self) -> list[str]:
        return sorted(self._tools)

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """What the named tool finds wrong with the arguments."""
        return self._tools[name].validate(arguments)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())
