"""`make mutants`: change the rules in small ways, one at a time, and see that a test notices each change.

    python scripts/mutants.py [--only TEXT] [--count N] [--minutes N] [--seed N]    --only: paths that hold the text

A mutant swaps a comparison, a boolean or an arithmetic operator, changes a constant, or leaves a statement out. It
exists in the memory of one process, which runs the tests that `mutants.toml` maps to the module: no file is changed.
A mutant that no test notices is killed by a new test, or explained in `mutants.toml`; else this ends with code 1.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis  # noqa: F401 - what the tests import anyway is imported once, before the forks
import jinja2  # noqa: F401
import msgspec  # noqa: F401
import pydantic  # noqa: F401
import pytest
import yaml  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "windlass"
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

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
    """Its place in the order of `changes`."""
    line: int
    key: str
    """The module, what is changed, and the line's text: the same though other lines move."""


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
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


def mutants_of(path: Path) -> list[Mutant]:
    text = path.read_text()
    lines = text.splitlines()
    name = path.relative_to(SOURCE).as_posix()
    return [
        Mutant(path, number, line, f"{name}: {what}: {lines[line - 1].strip()}")
        for number, (node, what) in enumerate(changes(ast.parse(text)))
        for line in [getattr(node, "lineno", 1)]
    ]


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with one change in it."""

    def __init__(self, mutant: Mutant) -> None:
        parts = mutant.path.relative_to(SOURCE.parent).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
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
        tree = ast.parse(self._mutant.path.read_text())
        for number, _ in enumerate(changes(tree)):
            if number == self._mutant.number:
                exec(compile(ast.fix_missing_locations(tree), str(self._mutant.path), "exec"), module.__dict__)
                return


def fails(tests: list[str], seconds: float, mutant: Mutant | None = None) -> bool:
    """Run the tests, with the mutant if there is one, in a process of its own; one that comes to no end fails, too."""
    child = os.fork()
    if child == 0:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        if mutant is not None:
            sys.meta_path.insert(0, Mutated(mutant))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "0", *tests]
        os._exit(int(pytest.main(options)))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def tests_for(path: Path) -> list[str]:
    """The tests of the longest beginning of its path that the table knows."""
    name = path.relative_to(SOURCE).as_posix()
    known = [prefix for prefix in TABLE["tests"] if name.startswith(prefix)]
    return list(TABLE["tests"][max(known, key=len)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the rules, and see that the tests notice.")
    parser.add_argument("--only", default="", help="modules whose path holds this text")
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.chdir(ROOT)
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if asked.only in str(path.relative_to(SOURCE))]
    mapped = tuple(TABLE["tests"])
    paths = [path for path in paths if path.relative_to(SOURCE).as_posix().startswith(mapped)]
    every = [mutant for path in paths for mutant in mutants_of(path)]
    explained = {known["mutant"] for known in TABLE.get("explained", [])}
    chosen = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    for tests in {tuple(tests_for(mutant.path)): None for mutant in chosen}:
        if fails([*tests], TABLE["seconds"]):
            print(f"these tests fail without any change, so they would notice nothing: {' '.join(tests)}")
            return 1
    deadline, tried, survivors = time.monotonic() + asked.minutes * 60, 0, []
    for mutant in chosen:
        if time.monotonic() > deadline:
            break
        tried += 1
        if mutant.key not in explained and not fails(tests_for(mutant.path), TABLE["seconds"], mutant):
            survivors.append(mutant)
            print(f"survived: {mutant.path.relative_to(ROOT)}:{mutant.line}\n    {mutant.key}", flush=True)
    print(f"{tried} of {len(every)} mutants tried with seed {asked.seed}: {len(survivors)} survived unexplained")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
