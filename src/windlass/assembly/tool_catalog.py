"""The catalog of all tools: the same in `windlass tools`, over HTTP and over MCP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from windlass.clock import iso
from windlass.engine.code.caller import callable_names
from windlass.engine.code.composed import Composed
from windlass.engine.code.search import CodeSearch, search
from windlass.engine.code.typings import declarations
from windlass.engine.engine import Engine
from windlass.homes import user_folder
from windlass.plan.model import AGENT, CODE, MERGE
from windlass.ports import ComposedTool, Tool

__all__ = ["callable_tools", "every_tool", "file_of", "fitting", "kind_of", "tool_data", "whole_data"]

Kind = Literal["built-in", "composed", "mcp", "own"]
FOLDER = "composed-tools"


def kind_of(engine: Engine, tool: Tool) -> Kind:
    """Ours, an MCP server's, one that was composed here, or one that whoever opened the engine has brought along."""
    if tool.composed is not None:
        return "composed"
    if tool.name.startswith("mcp."):
        return "mcp"
    ours = engine.built_in is not None and tool.name in engine.built_in
    return "built-in" if ours or tool.name in (AGENT, CODE, MERGE, CodeSearch().name) else "own"


def tool_data(engine: Engine, tool: Tool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": tool.name,
        "kind": kind_of(engine, tool),
        "description": tool.description,
        "effect": _effect(tool),
        "schema": tool.schema,
        "returns": tool.returns,
    }
    saved = tool.composed
    if saved is not None and engine.shelf is not None:
        uses = engine.shelf.uses(saved)
        told["grants"] = list(saved.grants)
        told["scope"] = "user" if saved.everywhere else "project"
        told["uses"] = {"times": uses.times, "failed": uses.failed, "last_at": _when(uses.last_at)}
    return told


def _when(at: float | None) -> str | None:
    """The count may have come with a repository, and say anything."""
    try:
        return iso(at)
    except (OverflowError, OSError, ValueError):
        return None


def whole_data(engine: Engine, tool: Tool) -> dict[str, Any]:
    """The same with its declaration for programs, where they can call it, and the source of a composed one."""
    told = tool_data(engine, tool)
    told["declaration"] = declarations([tool]) if callable_names([tool.name]) else None
    if tool.composed is not None:
        told["file"] = str(file_of(engine, tool.composed))
        told["source"] = tool.composed.source
    return told


def file_of(engine: Engine, kept: ComposedTool) -> Path:
    """The file of its program; its description is beside that."""
    return (user_folder() if kept.everywhere else engine.home) / FOLDER / f"{kept.name}.js"


def every_tool(engine: Engine) -> list[Tool]:
    """All that there are, by name. The shelf is looked at once, not once for each of them."""
    box = engine.attempt_runner.tools
    kept = {tool.name: tool for tool in engine.shelf.all()} if engine.shelf is not None else {}
    found = {name: tool for name in box.names() if name not in kept and (tool := box.get(name)) is not None}
    one = next((tool for name in kept if isinstance(tool := box.get(name), Composed)), None)
    if one is not None:
        found |= {name: Composed(tool, one.desk, one.policy, one.shelf) for name, tool in kept.items()}
    return [found[name] for name in sorted(found)]


def callable_tools(engine: Engine) -> list[Tool]:
    """Those that a program can call."""
    return [tool for tool in every_tool(engine) if callable_names([tool.name])]


def fitting(engine: Engine, query: str, limit: int) -> list[Tool]:
    """Those of them that some words fit, the best first; without words, all."""
    tools = callable_tools(engine)
    return search(tools, query, limit) if query.strip() else tools[:limit]


class _Asked(Exception):
    """The effect depends on the arguments."""


class _Unknown(Mapping[str, Any]):
    """Arguments that nobody knows yet."""

    def __getitem__(self, key: str) -> Any:
        raise _Asked

    def __iter__(self) -> Iterator[str]:
        raise _Asked

    def __len__(self) -> int:
        raise _Asked


def _effect(tool: Tool) -> str | None:
    """The effect, where it is the same for all arguments."""
    try:
        return str(tool.effect(_Unknown()))
    except Exception:  # it was asked for, by a tool that may be anybody's
        return None
