"""Print every error text that a user can meet, with … for what is filled in: `python scripts/error_texts.py`.

Read it as a user would: does each say what happened, where and why, and name the next thing to do? A text is the
message of an exception of ours, of a failure, or a problem of a plan or of settings (a `ValueError`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "windlass"
PLACES = {"Failure": 1, "_problem": 1, "complain": 0}
"""Calls that carry a text, beside exceptions, with its place among their arguments."""


class ErrorText(NamedTuple):
    file: str
    line: int
    text: str


def error_texts() -> Iterator[ErrorText]:
    found = {file: list(_nodes(file)) for file in sorted(SOURCE.rglob("*.py"))}
    kinds = _exceptions(node for nodes in found.values() for node in nodes if isinstance(node, ast.ClassDef))
    for file, nodes in found.items():
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            place = 0 if called in kinds else PLACES.get(called)
            # A single word is the name of a limit or of a category, which is shown within a text.
            text = _text(node.args[place]) if place is not None and len(node.args) > place else ""
            if " " in text.strip("…:/ "):
                yield ErrorText(str(file.relative_to(SOURCE)), node.lineno, text)


def advice_texts() -> Iterator[ErrorText]:
    """Each line of advice that stands beside an error."""
    for file in sorted(SOURCE.rglob("*.py")):
        for given in (more for node in _nodes(file) if isinstance(node, ast.Call) for more in node.keywords):
            if given.arg == "advice":
                lines = given.value.elts if isinstance(given.value, ast.Tuple | ast.List) else [given.value]
                yield from (ErrorText(str(file.relative_to(SOURCE)), line.lineno, _text(line)) for line in lines)


def _nodes(file: Path) -> Iterator[ast.ClassDef | ast.Call]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.Call):
            yield node


def _exceptions(classes: Iterable[ast.ClassDef]) -> set[str]:
    """The names of all exceptions of ours, wherever they are defined, and of those that pydantic shows as a problem."""
    bases = {node.name: {base.id for base in node.bases if isinstance(base, ast.Name)} for node in classes}
    found = {"Exception", "ValueError"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def _text(node: ast.expr) -> str:
    """A text as it is written in the source; empty if it comes from elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left) or "…") + (_text(node.right) or "…")
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body)} / {_text(node.orelse)}"
    return ""


if __name__ == "__main__":
    for one in error_texts():
        sys.stdout.write(f"{one.file}:{one.line}: {one.text}\n")
