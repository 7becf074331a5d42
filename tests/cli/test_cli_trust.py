"""Python code of a plan's folder runs only where a person said so, once (TRUST: a hostile repository)."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = "{tools: [tools.py], steps: [{id: a, run: echo ran >> ran}, {id: b, tool: hi}]}"
TOOLS = """
from pathlib import Path
from windlass import tool

Path("loaded").touch()

@tool
def hi() -> str:
    return "hi"
"""


@pytest.fixture
def plan(project: Project) -> str:
    project.file("tools.py", TOOLS)
    return project.plan(PLAN)


@pytest.mark.parametrize("command", [["run"], ["plan", "check"], ["run", "--detach"]], ids=" ".join)
def test_an_untrusted_folder_without_a_terminal_exits_4_and_nothing_ran(
    project: Project, windlass: Windlass, plan: str, command: list[str]
) -> None:
    ran = windlass(*command, plan, code=4)
    assert "tools.py" in ran.err
    assert str(project.path) in ran.err
    assert "windlass trust " in ran.err
    assert ran.out == ""
    assert not (project.path / "loaded").exists()
    assert project.lines("ran") == []
    assert project.ids() == []


def test_yes_trusts_the_folder_and_it_is_remembered(project: Project, windlass: Windlass, plan: str) -> None:
    windlass("run", plan, "--yes")
    windlass("run", plan)
    assert project.lines("ran") == ["ran", "ran"]
    file = project.user / ".config" / "windlass" / "trusted.json"
    assert json.loads(file.read_text()) == {"folders": [str(project.path)]}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    other = project.path / "vendor"
    other.mkdir()
    (other / "tools.py").write_text(TOOLS)
    (other / "plan.yaml").write_text(PLAN)
    windlass("run", other / "plan.yaml", code=4)


def test_a_plan_may_not_reach_into_another_folder_unasked(project: Project, windlass: Windlass, plan: str) -> None:
    windlass("run", plan, "--yes")
    outside = project.path.parent / "outside"
    outside.mkdir()
    (outside / "tools.py").write_text(TOOLS)
    sneaky = project.plan("{tools: [../outside/tools.py], steps: [{id: b, tool: hi}]}", "sneaky.yaml")
    ran = windlass("run", sneaky, code=4)
    assert str(outside) in ran.err
    link = project.path / "linked.py"
    link.symlink_to(outside / "tools.py")
    linked = project.plan("{tools: [linked.py], steps: [{id: b, tool: hi}]}", "linked.yaml")
    windlass("run", linked, code=4)


def test_in_a_terminal_it_is_asked_once(project: Project, windlass: Windlass, plan: str) -> None:
    terminal = windlass.terminal("run", plan)
    terminal.expect("Trust this folder")
    assert "tools.py" in terminal.shown
    assert not (project.path / "loaded").exists()
    terminal.type("n\n")
    ran = terminal.ended()
    assert ran.code == 4, ran
    assert not (project.path / "loaded").exists()
    terminal = windlass.terminal("run", plan)
    terminal.expect("Trust this folder")
    terminal.type("y\n")
    assert terminal.ended().code == 0
    again = windlass.terminal("run", plan).ended()
    assert again.code == 0
    assert "Trust" not in again.err


def test_a_damaged_record_of_trust_is_told_and_trusts_nobody(project: Project, windlass: Windlass, plan: str) -> None:
    for wrong in ("{", '{"folders": 5}', "\udcff"):
        project.user_file("trusted.json", "").write_bytes(wrong.encode("utf-8", "surrogateescape"))
        ran = windlass("run", plan, code=2)
        assert "trusted" in ran.err
        assert not (project.path / "loaded").exists()


def test_a_missing_file_of_tools_is_named(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", project.plan("{tools: [gone.py], steps: [{id: a, tool: x}]}"), code=2)
    assert "gone.py" in ran.err
