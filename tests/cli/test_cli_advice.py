"""Errors end with a command to type, also those that bring no advice of their own (C5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest

from windlass.cli.app import app
from windlass.cli.text import failure_lines
from windlass.errors import Category, Failure
from windlass.plan.model import Plan
from windlass.testing import Simulation

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


def _incomplete(group: click.Group, *words: str) -> Iterator[tuple[list[str], str]]:
    """Each command with one word less than it needs, and the name of the word."""
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _incomplete(command, *words, name)
        needed = [one for one in command.params if isinstance(one, click.Argument) and one.required]
        for count, missing in enumerate(needed):
            yield [*words, name, *["x"] * count], str(missing.metavar).removesuffix("...")


@pytest.mark.parametrize(("typed", "missing"), list(_incomplete(app)), ids=str)
def test_i1_a_word_that_is_missing_is_named(typed: list[str], missing: str) -> None:
    with pytest.raises(click.MissingParameter) as raised:
        app.main(typed, standalone_mode=False)
    assert raised.value.param is not None
    assert str(raised.value.param.metavar).removesuffix("...") == missing


def test_i1_the_shell_is_told_which_word_is_missing(windlass: Windlass) -> None:
    told = windlass("retry", "x", code=2)
    assert "STEP" in told.err
    assert "windlass retry --help" in told.err


def test_c5_advice_of_a_failure_names_the_execution() -> None:
    failure = Failure(Category.LOGIC, "refused", advice=("look at it with windlass logs ID --prompt", "ask for an ID"))
    run = Simulation(Plan.model_validate({"name": "test", "steps": [{"id": "a", "run": "true"}]}))
    assert failure_lines("a", failure, run.state)[1:] == [
        f"      → look at it with windlass logs {run.state.id} --prompt",
        "      → ask for an ID",
    ]


@pytest.mark.parametrize("command", [("logs", "@last"), ("transcript", "@last", "a")], ids=lambda words: words[0])
def test_i1_the_help_says_that_there_is_one_object_a_line(windlass: Windlass, command: tuple[str, ...]) -> None:
    assert "Print one JSON object a line" in windlass(*command, "--help").out


def test_c5_a_word_for_a_number_is_refused_in_plain_words(project: Project, windlass: Windlass) -> None:
    plan = project.plan("steps: [{id: a, run: 'true'}]")
    assert "'two' is not a valid number" in windlass("run", plan, "--budget", "two", code=2).err
    assert "'many' is not a valid whole number" in windlass("run", plan, "--parallel", "many", code=2).err
