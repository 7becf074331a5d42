"""`files.apply`: several changes under one undo log, so that a failing one takes the others back."""

from __future__ import annotations

from typing import Any

from windlass.errors import ToolError
from windlass.tools.files.arguments import Apply
from windlass.tools.files.change import OPERATIONS
from windlass.tools.files.failures import explain
from windlass.tools.files.safe_path import Root
from windlass.tools.files.undo import Undo

__all__ = ["apply"]


def apply(root: Root, undo: Undo, arguments: Apply) -> dict[str, Any]:
    results = []
    for number, change in enumerate(arguments.changes, 1):
        try:
            results.append({"do": change.do, **OPERATIONS[change.do](root, undo, change)})
        except (ToolError, OSError) as error:
            where = f"change {number} of {len(arguments.changes)} ({change.do})"
            if isinstance(error, OSError):
                raise explain(error, where) from error
            raise ToolError(
                f"{where}: {error}", category=error.failure.category, advice=error.failure.advice
            ) from error
    return {"changes": results}
