"""No module imports one that imports it, not even for types alone: each can be read without the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_no_module_imports_itself_through_another_one() -> None:
    graph = _imports()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these modules import each other: {' ← '.join(error.args[1])}") from None


def _imports() -> dict[str, set[str]]:
    """The modules that each module imports when it is loaded, or for types; imports in functions do not count."""
    files = {_name(file): file for file in SOURCE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        found: set[str] = set()
        for node in _statements(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (inner & files.keys()) or {node.module}
        graph[module] = (found & files.keys()) - {module}
    return graph


def _name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield child
            yield from _statements(child)
