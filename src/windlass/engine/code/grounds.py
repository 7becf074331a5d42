"""What an approval of a program rests on: the composed tools that it is, or may call (C6, G3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from windlass.core.approval import hash_of
from windlass.plan.grants import granted_tools
from windlass.ports import ComposedTool, Tool, Toolbox

__all__ = ["program_basis"]


@runtime_checkable
class _Saved(Protocol):
    """A tool that is a saved program."""

    @property
    def kept(self) -> ComposedTool: ...


def program_basis(first: Iterable[Tool | None], tools: Toolbox) -> dict[str, str]:
    """The programs and grants of the composed tools among these, and of all that they may call in turn."""
    basis: dict[str, str] = {}
    todo = list(first)
    for tool in todo:  # which grows by what is found
        if isinstance(tool, _Saved) and f"program {tool.kept.name}" not in basis:
            kept = tool.kept
            basis[f"program {kept.name}"] = hash_of([kept.source, kept.grants, kept.returns])
            todo += [tools.get(name) for name in granted_tools(kept.grants, tools.names())]
    return basis
