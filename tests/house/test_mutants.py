"""The table of `make mutants` fits the tree: its modules, its tests, and the mutants that it explains (I5)."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutants import TABLE  # noqa: E402  the scripts are no package
from mutations import SOURCE, mutants_of  # noqa: E402


def test_the_table_names_modules_and_tests_that_exist() -> None:
    for modules in TABLE["modules"]:
        assert any((SOURCE / modules).rglob("*.py")), modules
    for test in TABLE["tests"]:
        assert (ROOT / test).exists(), test


def test_every_explained_mutant_is_still_one() -> None:
    explained = defaultdict(set)
    for row in TABLE["explained"]:
        explained[row["mutant"].partition(": ")[0]].add(row["mutant"])
        assert row["why"]
    for module, mutants in explained.items():
        assert mutants <= {mutant.key for mutant in mutants_of(SOURCE / module)}, module
