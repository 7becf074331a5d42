"""The house rules that no linter knows: one name for one class, plain words, and a complete map of src/.

A new plain word goes into `plain_words.txt`; a word with a meaning of its own goes into the glossary of CONTRIBUTING.md
instead.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "windlass"
PLAIN = set(Path(__file__).with_name("plain_words.txt").read_text().split())
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()
PUZZLING = re.compile(r"(What|Who|Whether|How|Where|That)\b")

Named = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def modules() -> dict[Path, ast.Module]:
    return {path.relative_to(SOURCE): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def nodes(modules: dict[Path, ast.Module], kind: Any) -> Iterator[tuple[Path, Any]]:
    for path, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, kind):
                yield path, node


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name)]


def glossary() -> dict[str, str]:
    section = CONTRIBUTING.partition("## Glossary\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| ([A-Z][a-z]+) \| (.+) \|$", section, re.MULTILINE))


def test_no_class_name_is_used_twice(modules: dict[Path, ast.Module]) -> None:
    counts = Counter(node.name for _, node in nodes(modules, ast.ClassDef))
    assert [name for name, count in counts.items() if count > 1] == [], "rename one of each"


def test_class_names_are_made_of_plain_words_and_of_the_glossarys(modules: dict[Path, ast.Module]) -> None:
    allowed = PLAIN | {word.lower() for word in glossary()}
    unknown = {node.name for _, node in nodes(modules, ast.ClassDef) if not allowed.issuperset(words_of(node.name))}
    assert sorted(unknown) == [], "a plain word goes into plain_words.txt, a term into the glossary, a metaphor goes"


def test_the_modules_of_the_recipes_keep_the_rules() -> None:
    """Whoever follows CONTRIBUTING.md word for word has a `make check` that passes."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    recipes = [textwrap.dedent(block) for block in blocks if '"""' in block]
    assert len(recipes) == 2, "a tool and a runner"
    test_class_names_are_made_of_plain_words_and_of_the_glossarys({
        Path(f"{number}.py"): ast.parse(recipe) for number, recipe in enumerate(recipes)
    })  # fmt: skip
    for recipe in recipes:
        for rule in (["check"], ["format", "--check"]):
            command = [sys.executable, "-m", "ruff", *rule, "--stdin-filename", SOURCE / "recipe.py", "-"]
            checked = subprocess.run(command, input=recipe, capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_glossary_has_one_line_for_each_of_its_words() -> None:
    assert len(glossary()) >= 25
    assert [word for word, meaning in glossary().items() if len(meaning) < 15] == []
    assert sorted(PLAIN & {word.lower() for word in glossary()}) == [], "a word is plain or has a meaning of its own"


def test_docstrings_begin_with_a_verb_or_a_noun(modules: dict[Path, ast.Module]) -> None:
    found = [
        f"{path}:{getattr(node, 'lineno', 1)}"
        for path, node in nodes(modules, Named)
        if PUZZLING.match(ast.get_docstring(node) or "")
    ]
    assert found == [], "begin them with a verb or a noun"


def test_the_map_in_contributing_names_every_package_and_module() -> None:
    drawn = CONTRIBUTING.partition("src/windlass/\n")[2].partition("\n```")[0]
    packages, path = set[str](), list[str]()
    for line in drawn.splitlines():
        if found := re.match(r"( +)([a-z_]+)/ ", line):
            path[len(found[1]) // 2 - 1 :] = [found[2]]
            packages.add("/".join(path))
    real = {str(init.parent.relative_to(SOURCE)) for init in SOURCE.rglob("*/__init__.py")}
    assert sorted(real ^ packages) == [], "on the map or in the tree, and not in both"
    lines = [line for line in drawn.splitlines() if not re.match(r" +[a-z_]+/ ", line)]
    modules = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    named = {word for line in lines for word in line.strip().partition("  ")[0].split()}
    assert sorted(modules - named) == []


MAY_PAUSE = {"tools/http/test_http_hostile.py", "tools/test_shell.py"}
"""A server that is slow, and a command that looks for a file again."""


def test_no_test_sleeps_for_a_time() -> None:
    """A pause of under a minute is meant to pass; a longer one is what a test ends, or waits beside."""
    tests = REPOSITORY / "tests"
    pauses = {
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        for seconds in re.findall(r"\bsleep\(([\d.]+)", path.read_text())
        if 0 < float(seconds) < 60
    }
    assert pauses == MAY_PAUSE, "wait for a signal, or with tests/waiting.py"


def test_no_two_files_of_tests_have_one_name() -> None:
    """The folders are no packages: pytest refuses the second module of a name, and all tests with it."""
    paths = (REPOSITORY / "tests").rglob("test_*.py")
    counts = Counter(path.name for path in paths)
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_repetition_that_is_left_to_the_soak_run_names_a_test() -> None:
    lines = (REPOSITORY / "tests" / "repetitions.txt").read_text().splitlines()
    for line in filter(None, lines):
        if not line.startswith("#"):
            path, _, rest = line.partition("::")
            assert f"def {rest.partition('[')[0]}(" in (REPOSITORY / "tests" / path).read_text(), line
