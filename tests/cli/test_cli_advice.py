"""Errors end with a command to type, also those that bring no advice of their own (C5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass


@pytest.mark.parametrize(
    ("typed", "advised"),
    [
        (["run"], "windlass run --help"),
        (["list", "--status", "odd"], "windlass list --help"),
        (["tools", "run", "odd", "--with", "{}"], "windlass tools"),
        (["run", "bad.yaml"], "windlass plan check bad.yaml"),
        (["resume", "nothing"], "windlass run PLAN"),
    ],
)
def test_c5_an_error_of_a_command_names_a_command(
    project: Project, windlass: Windlass, typed: list[str], advised: str
) -> None:
    project.file("bad.yaml", "steps: [{id: a, runs: echo}]")
    told = windlass(*typed, code=2)
    assert any(line.startswith("  → ") and advised in line for line in told.err.splitlines()), told.err


def test_c5_the_command_has_the_home_that_was_named(project: Project, windlass: Windlass) -> None:
    told = windlass("--home", "other", "run", "--json", code=2)
    home = project.path / "other"
    assert json.loads(told.out)["error"]["advice"] == [f"see its options: windlass --home {home} run --help"]
