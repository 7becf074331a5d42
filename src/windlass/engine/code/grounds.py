"""The basis for approving a program: the composed tools that it is, or may call (C6, G3)."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.core.approval import hash_of
from windlass.plan.program import granted_tools
from windlass.ports import Tool, Toolbox

__all__ = ["program_basis"]


def program_basis(first: Iterable[Tool | None], tools: Toolbox) -> dict[str, str]:
    """The programs and grants of the composed tools among these, and of all that they may call in turn."""
    basis: dict[str, str] = {}
    todo = list(first)
    for tool in todo:  # the list grows in the loop
        saved = tool.composed if tool is not None else None
        if saved is not None and f"program {saved.name}" not in basis:
            basis[f"program {saved.name}"] = hash_of([saved.source, saved.grants, saved.returns])
            todo += [tools.get(name) for name in granted_tools(saved.grants, tools.names())]
    return basis
