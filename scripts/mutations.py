"""Small changes of the program's modules, as `make mutants` tries them: which there are, and how one takes effect.

A change swaps a comparison, a boolean or an arithmetic operator, changes a constant, or leaves a statement out. No file
is changed: the new code replaces that of functions in the memory of one process, or of the module as it is imported.
"""

from __future__ import annotations

import ast
import copy
import gc
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["SOURCE", "Mutant", "functions_of", "import_changed", "mutants_of", "replace_code"]

SOURCE = Path(__file__).resolve().parent.parent / "src" / "windlass"

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}


@dataclass(frozen=True)
class Mutant:
    path: Path
    number: int
    """Its place in the order of `_changes`."""
    line: int
    lines: range
    """Those of its statement, without the statements in it."""
    around: range
    """Those of its coroutine function, else the same: behind an error that is thrown into a coroutine, lines may be
    passed and not be seen."""
    key: str
    """The module, what is changed, and the line's text: the same though other lines move."""
    imported: bool
    """Whether it takes effect as the module is imported: it is in no function."""

    @property
    def module(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()


def mutants_of(path: Path) -> list[Mutant]:
    text = path.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    name = path.relative_to(SOURCE).as_posix()
    places = _places(tree)
    made = []
    for number, (node, what) in enumerate(_changes(tree)):
        line = getattr(node, "lineno", 1)
        covered, around, imported = places[node]
        made.append(Mutant(path, number, line, covered, around, f"{name}: {what}: {lines[line - 1].strip()}", imported))
    return made


def _places(tree: ast.Module) -> dict[ast.AST, tuple[range, range, bool]]:
    """The lines of each node's statement and of its coroutine function, and whether the module's import executes it."""
    found: dict[ast.AST, tuple[range, range, bool]] = {}

    def visit(node: ast.AST, lines: range, around: range | None, imported: bool) -> None:
        if isinstance(node, ast.stmt):
            inner = getattr(node, "body", None) or [case.pattern for case in getattr(node, "cases", ())]
            last = max(node.lineno, inner[0].lineno - 1) if inner else node.end_lineno or node.lineno
            lines = range(node.lineno, last + 1)
        found[node] = lines, around or lines, imported
        for field, value in ast.iter_fields(node):
            inside = field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            within = None if inside else around
            if inside and isinstance(node, ast.AsyncFunctionDef):
                within = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, lines, within, imported and not inside)

    visit(tree, range(1, 2), None, True)
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Change the tree in one way after another; each change is undone before the next."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(parent, ast.keyword) and parent.arg in ("frozen", "gc"):
                continue  # mypy refuses assignments to what is frozen; gc is about speed alone
            for index, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST):
                    continue
                for replacement, what in _replacements(node):
                    if isinstance(value, list):
                        value[index] = replacement
                        yield node, what
                        value[index] = node
                    else:
                        setattr(parent, field, replacement)
                        yield node, what
                        setattr(parent, field, node)


def _replacements(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            made = copy.copy(node)
            made.ops = [COMPARISONS[type(op)]()]
            yield made, f"{type(op).__name__} → {type(made.ops[0]).__name__}"
        case ast.BoolOp():
            made_bool = copy.copy(node)
            made_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield made_bool, f"{type(node.op).__name__} → {type(made_bool.op).__name__}"
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            made_sum = copy.copy(node)
            made_sum.op = ARITHMETIC[type(node.op)]()
            yield made_sum, f"{type(node.op).__name__} → {type(made_sum.op).__name__}"
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand, "without not"
        case ast.Constant(value=bool() as truth):
            yield ast.copy_location(ast.Constant(not truth), node), f"{truth} → {not truth}"
        case ast.Constant(value=int() as number):
            yield ast.copy_location(ast.Constant(number + 1), node), f"{number} → {number + 1}"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue():
            yield ast.copy_location(ast.Pass(), node), "left out"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.copy_location(ast.Pass(), node), "left out"


def _changed(mutant: Mutant) -> CodeType:
    """The code of the mutant's module."""
    tree = ast.parse(mutant.path.read_text())
    for number, _ in enumerate(_changes(tree)):
        if number == mutant.number:
            return compile(ast.fix_missing_locations(tree), str(mutant.path), "exec")
    raise AssertionError("the module has changed")


def functions_of(paths: Iterable[Path]) -> dict[Path, list[FunctionType]]:
    """The functions of these modules, which are imported here: the tests have imported only some of them by now."""
    found: dict[str, list[FunctionType]] = {}
    for path in paths:
        importlib.import_module(_name_of(path))
        found[str(path)] = []
    gc.unfreeze()
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in found:
            found[each.__code__.co_filename].append(each)
    gc.freeze()
    return {Path(name): functions for name, functions in found.items()}


def _name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def replace_code(mutant: Mutant, functions: Iterable[FunctionType]) -> bool:
    """Give the functions of the mutant's module its code; `False` where one cannot take it: only a new import can."""
    codes: dict[tuple[str, int], list[CodeType]] = {}

    def collect(code: CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                codes.setdefault((constant.co_qualname, constant.co_firstlineno), []).append(constant)
                collect(constant)

    collect(_changed(mutant))
    for function in functions:
        old = function.__code__
        new = codes.get((old.co_qualname, old.co_firstlineno), [])
        if len(new) != 1 or new[0].co_freevars != old.co_freevars:
            return False
        function.__code__ = new[0]
    return True


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self._name = _name_of(mutant.path)
        self._mutant = mutant

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self._name:
            return None
        package = [str(self._mutant.path.parent)] if self._mutant.path.stem == "__init__" else None
        return importlib.util.spec_from_file_location(
            name, self._mutant.path, loader=self, submodule_search_locations=package
        )

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(_changed(self._mutant), module.__dict__)


def import_changed(mutant: Mutant) -> None:
    """Have the mutant's module imported with the change in it. It is not imported yet."""
    sys.meta_path.insert(0, _Changed(mutant))
