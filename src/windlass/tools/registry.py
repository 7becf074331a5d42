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

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]:
        """Names that the tool does not know, and names that it misses."""
        schema = self._tools[name].schema
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

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())
