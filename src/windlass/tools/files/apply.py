"""`files.apply`: several changes under one undo log, so that a failing one takes the others back."""

from __future__ import annotations

from typing import Any

from windlass.tools.files.arguments import Apply
from windlass.tools.files.change import OPERATIONS
from windlass.tools.files.failures import nested
from windlass.tools.files.safe_path import Root
from windlass.tools.files.undo import Undo

__all__ = ["apply"]


def apply(root: Root, undo: Undo, arguments: Apply) -> dict[str, Any]:
    results = []
    for number, change in enumerate(arguments.changes, 1):
        with nested(f"change {number} of {len(arguments.changes)} ({change.do})"):
            results.append({"do": change.do, **OPERATIONS[change.do](root, undo, change)})
    return {"changes": results}
