"""The tools an engine knows, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from windlass.errors import UsageError
from windlass.ports import Tool

__all__ = ["Registry"]


def _no_more() -> Sequence[Tool]:
    return ()


def _nobody(name: str) -> Tool | None:
    return None


class Registry:
    def __init__(
        self,
        tools: Iterable[Tool] = (),
        more: Callable[[], Sequence[Tool]] = _no_more,
        unlisted: Callable[[str], Tool | None] = _nobody,
    ) -> None:
        """`more` gives tools that come and go while the engine is open; none of them takes the name of another.
        `unlisted` finds one by a name that nobody lists."""
        self._tools: dict[str, Tool] = {}
        self._more, self._unlisted = more, unlisted
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
        return Registry([*self._tools.values(), *tools], self._more, self._unlisted)

    def get(self, name: str) -> Tool | None:
        found = self._tools.get(name) or next((tool for tool in self._more() if tool.name == name), None)
        return found if found is not None else self._unlisted(name)

    def knows(self, name: str) -> bool:
        return self.get(name) is not None

    def nearest(self, name: str) -> str | None:
        return next(iter(difflib.get_close_matches(name, self.names(), 1)), None)

    def names(self) -> list[str]:
        return sorted({*self._tools, *(tool.name for tool in self._more())})

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """What the named tool finds wrong with the arguments."""
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

    def __iter__(self) -> Iterator[Tool]:
        return iter([tool for name in self.names() if (tool := self.get(name)) is not None])
