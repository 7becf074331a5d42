"""The table of `make mutants` fits the tree: its modules, its tests, and the mutants that it explains (I5)."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutants import SOURCE, TABLE, mutants_of  # noqa: E402  the scripts are no package


def test_every_row_has_modules_and_tests_that_exist() -> None:
    modules = [file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py")]
    for beginning, tests in TABLE["tests"].items():
        assert any(module.startswith(beginning) for module in modules), beginning
        for test in tests:
            file, _, name = test.partition("::")
            assert (ROOT / file).exists(), test
            assert not name or f"def {name}(" in (ROOT / file).read_text(), test


def test_every_explained_mutant_is_still_one() -> None:
    explained = defaultdict(set)
    for row in TABLE["explained"]:
        explained[row["mutant"].partition(": ")[0]].add(row["mutant"])
        assert row["why"]
    for module, mutants in explained.items():
        assert mutants <= {mutant.key for mutant in mutants_of(SOURCE / module)}, module
