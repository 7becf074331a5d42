"""The seam towards composed tools: programs that were saved under a name, to be used like any other tool (G3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

__all__ = ["ComposedStore", "ComposedTool", "Uses"]


class ComposedTool(msgspec.Struct, frozen=True):
    """A saved program with a name, a description and schemas, usable as a tool."""

    name: str
    source: str
    """The body of an async JavaScript function; its arguments are `args`."""
    schema: Mapping[str, Any]
    """JSON Schema of its arguments: an object."""
    description: str = ""
    grants: tuple[str, ...] = ()
    """Tools that it calls; names and patterns like `files.*`. It gets those of them that its caller has, too."""
    returns: Mapping[str, Any] | None = None
    """JSON Schema of its result, where it has one."""
    everywhere: bool = False
    """Kept in the user's own folder for all projects, not in the project's home."""


class Uses(NamedTuple):
    """Counts of the uses of a tool."""

    times: int = 0
    failed: int = 0
    last_at: float | None = None


class ComposedStore(Protocol):
    """The place for composed tools."""

    def all(self) -> list[ComposedTool]:
        """Every one that can be used, by name; a project's own stands before one for all projects."""
        ...

    def stamp(self) -> object:
        """Another one as soon as a tool was saved or deleted, by whomever. Quick."""
        ...

    def problems(self) -> list[str]:
        """Files that are there and cannot be used, and why."""
        ...

    def save(self, tool: ComposedTool) -> Path:
        """Keep it, in the place of one of the same name; gives the file."""
        ...

    def delete(self, name: str, *, everywhere: bool | None = None) -> None:
        """Take it away; NotFound if it is not there. Without `everywhere`, wherever it is."""
        ...

    def used(self, tool: ComposedTool, at: float, *, failed: bool) -> None:
        """It was used once more."""
        ...

    def uses(self, tool: ComposedTool) -> Uses: ...
