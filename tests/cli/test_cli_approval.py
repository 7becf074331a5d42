"""Approval from the command line (C6): shown in full, answered here, elsewhere, in the terminal, or not at all."""

from __future__ import annotations

import getpass
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass.core import events as ev

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
name: release
inputs: {target: staging}
steps:
  - {id: build, run: echo build >> ran}
  - {id: push, run: "echo push to {{ inputs.target | quote }} | tee -a ran", approve: always, needs: [build]}
  - {id: tell, run: echo tell >> ran, needs: [push]}
"""


def test_c6_without_a_terminal_it_stops_with_3_and_can_be_approved_and_resumed(
    project: Project, windlass: Windlass
) -> None:
    ran = windlass("run", project.plan(PLAN), "--input", "target=the moon", code=3)
    (execution,) = project.ids()
    assert "echo push to 'the moon' | tee -a ran" in ran.err, "the exact arguments are shown"
    assert f"windlass approve {execution} push" in ran.err
    (asked,) = windlass("approvals", "--json").json
    assert (asked["execution"], asked["plan"], asked["step"]) == (execution, "release", "push")
    assert (asked["kind"], asked["tool"]) == ("approval", "shell")
    assert asked["input"] == {"line": "echo push to 'the moon' | tee -a ran"}
    assert asked["expires_at"].endswith("Z")
    assert len(asked["digest"]) == 64
    assert [head["waiting"] for head in windlass("list", "--json").json] == ["approval"]
    assert "echo push to" in windlass("approvals").out
    told = windlass("approve", execution[:18], "push", "--note", "looked at it")
    assert "push is approved" in told.err
    assert f"windlass resume {execution}" in told.err
    assert project.lines("ran") == ["build"], "an answer alone starts nothing"
    assert windlass("approvals", "--json").json == []
    assert windlass("resume", execution, "--json").json["status"] == "completed"
    assert project.lines("ran") == ["build", "push to the moon", "tell"]
    answer = next(e for e in project.events(execution) if isinstance(e, ev.ApprovalAnswered))
    assert (answer.by, answer.note) == (getpass.getuser(), "looked at it")


def test_c6_somebody_whose_name_is_not_utf8_answers_too(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan(PLAN), "--input", "target=the moon", code=3)
    (execution,) = project.ids()
    windlass("approve", execution, "push", LOGNAME="j\udcfcrgen")
    answer = next(e for e in project.events(execution) if isinstance(e, ev.ApprovalAnswered))
    assert answer.by == "j?rgen"


def test_c6_the_commands_that_are_printed_work_as_they_stand(project: Project, windlass: Windlass) -> None:
    """Also for an item of a fan-out, whose name a shell would take for a pattern."""
    plan = project.plan("steps: [{id: each, run: 'echo {{ item | quote }} >> ran', foreach: [a], approve: always}]")
    (project.path / "each0").touch()
    stopped = windlass("run", plan, code=3)
    windlass.shell(stopped.command("approve"))
    windlass.shell(stopped.command("resume"))
    assert project.lines("ran") == ["a"]
    failed = windlass("run", project.plan("steps: [{id: b, run: test -e fixed}]", "other.yaml"), code=1)
    (project.path / "fixed").touch()
    windlass.shell(failed.command("fork"))


def test_c6_a_denial_fails_the_step_with_the_note(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan(PLAN), code=3)
    (execution,) = project.ids()
    assert "push is denied" in windlass("approve", execution, "push", "--deny", "--note", "not today").err
    told = windlass("resume", execution, "--json", code=1)
    assert told.json["status"] == "partial"
    push = told.json["steps"][1]
    assert push["error"]["category"] == "permission"
    assert push["error"]["message"].endswith(": not today")
    assert project.lines("ran") == ["build"]
    for how in ([], ["--deny"]):
        assert "is not waiting" in windlass("approve", execution, "push", *how, code=2).err
    assert "push" in windlass("approve", execution, "psuh", code=2).err


def test_c6_an_answer_for_other_arguments_is_asked_for_again(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan(PLAN), code=3)
    (execution,) = project.ids()
    windlass("approve", execution, "push")
    project.plan(PLAN.replace("tee -a ran", "tee -a ran; echo and more >> ran"))
    ran = windlass("resume", execution, "--accept-changes", code=3)
    assert "and more" in ran.err
    assert project.lines("ran") == ["build"]


def test_c6_unanswered_in_time_fails_closed(project: Project, windlass: Windlass, tmp_path: Path) -> None:
    project.file(".windlass/config.toml", 'approval_expiry = "1h"\n')
    windlass("run", project.plan(PLAN), code=3)
    (execution,) = project.ids()
    (tmp_path / "sitecustomize.py").write_text("import time\nnow = time.time\ntime.time = lambda: now() + 3601.0\n")
    later = {"PYTHONPATH": str(tmp_path)}
    for command in (["status", execution], ["approvals"]):
        told = windlass(*command, **later).out
        assert f"windlass resume {execution}   # closes the question of push, which has expired" in told
        assert "windlass approve" not in told
    late = windlass("approve", execution, "push", code=2, **later).err
    assert "has expired" in late
    close, again = re.findall(r"→ .*: windlass (\w+)", late)
    assert (close, again) == ("resume", "retry"), "a retry is refused as long as the question is open"
    ended = windlass("resume", execution, "--json", code=1, **later).json
    assert "expired without an answer" in ended["steps"][1]["error"]["message"]
    windlass(again, execution, "push", code=3, **later)
    assert "push" in windlass("approvals", **later).out
    assert project.lines("ran") == ["build"]


def test_c6_lines_of_a_question_cannot_look_like_the_arguments(project: Project, windlass: Windlass) -> None:
    gate = '{id: a, run: echo hi, approve: always, question: "ok?\\n  \\"line\\": 1\\nnext:"}'
    project.plan(f"steps: [{gate}]")
    told = windlass("run", "plan.yaml", code=3).err.splitlines()
    assert told[told.index("    ok?") :][:3] == ["    ok?", '  |   "line": 1', "  | next:"]


def test_c6_yes_answers_every_question(project: Project, windlass: Windlass, until: Any) -> None:
    assert windlass("run", project.plan(PLAN), "--yes", "--json").json["status"] == "completed"
    assert project.lines("ran") == ["build", "push to staging", "tell"]
    detached = windlass.detached("plan.yaml", "--yes")
    until(lambda: project.state(detached).status == "completed")


def test_c6_a_detached_driver_holds_and_takes_the_answer_of_another_process(
    project: Project, windlass: Windlass, until: Any
) -> None:
    execution = windlass.detached(project.plan(PLAN))
    until(lambda: project.state(execution).questions)
    assert project.state(execution).status == "running"
    (asked,) = windlass("approvals", "--json").json
    assert asked["step"] == "push"
    told = windlass("approve", execution, "push")
    assert "resume" not in told.err, "somebody goes on with it already"
    until(lambda: project.state(execution).status == "completed")
    assert project.lines("ran") == ["build", "push to staging", "tell"]


def test_c6_in_a_terminal_it_is_asked_and_yes_goes_on(project: Project, windlass: Windlass) -> None:
    terminal = windlass.terminal("run", project.plan(PLAN))
    terminal.expect("Allow it?")
    assert "echo push to staging | tee -a ran" in terminal.shown
    assert project.lines("ran") == ["build"]
    terminal.type("y\n")
    ran = terminal.ended()
    assert ran.code == 0, ran
    assert project.lines("ran") == ["build", "push to staging", "tell"]


@pytest.mark.parametrize("progress", ["tty", "plain"])
def test_c6_in_a_terminal_no_denies_an_empty_line_decides_later_and_anything_else_is_asked_again(
    project: Project, windlass: Windlass, progress: str
) -> None:
    terminal = windlass.terminal("run", project.plan(PLAN), "--progress", progress)
    terminal.expect("Allow it?")
    terminal.type("maybe\n")
    terminal.expect_again("Allow it?", after="please answer y, n or l")
    assert project.state(project.ids()[0]).status == "running"
    terminal.type("\n")
    ran = terminal.ended()
    assert ran.code == 3, ran
    (execution,) = project.ids()
    assert "paused (approval)" in ran.err, "as without a terminal"
    assert f"windlass resume {execution}" in ran.err
    terminal = windlass.terminal("resume", execution)
    terminal.expect("Allow it?")
    terminal.type("n\n")
    ran = terminal.ended()
    assert ran.code == 1, ran
    assert "denied by" in ran.err
    assert project.lines("ran") == ["build"]


def test_c6_a_question_in_the_terminal_goes_away_when_it_is_answered_elsewhere(
    project: Project, windlass: Windlass
) -> None:
    terminal = windlass.terminal("run", project.plan(PLAN))
    terminal.expect("Allow it?")
    (execution,) = project.ids()
    windlass("approve", execution, "push")
    ran = terminal.ended()
    assert ran.code == 0, ran
    assert project.lines("ran") == ["build", "push to staging", "tell"]


def test_c6_a_question_that_no_longer_stands_is_not_asked_in_the_terminal(project: Project, windlass: Windlass) -> None:
    """The plan changed while it waited: what is asked is what would be done now, and nothing else."""
    windlass("run", project.plan(PLAN), code=3)
    (execution,) = project.ids()
    project.plan(PLAN.replace("echo push to", "echo shove to"))
    terminal = windlass.terminal("resume", execution, "--accept-changes")
    terminal.expect("Allow it?")
    assert "echo shove to" in terminal.shown
    assert "echo push to" not in terminal.shown
    terminal.type("y\n")
    ran = terminal.ended()
    assert ran.code == 0, ran
    assert ran.err.count("asks to run shell with exactly") == 1
    assert project.lines("ran") == ["build", "shove to staging", "tell"]


def test_c6_several_questions_in_a_terminal_are_asked_one_after_another(project: Project, windlass: Windlass) -> None:
    plan = project.plan(
        """
        steps:
          - {id: each, run: "echo {{ item | quote }} >> ran", foreach: [a, b, c], approve: always}
        """
    )
    terminal = windlass.terminal("run", plan)
    for name, answer in (("each[0]", "y"), ("each[1]", "n"), ("each[2]", "y")):
        terminal.expect(f"Step {name} asks")
        shown = terminal.shown
        assert shown.count("Allow it?") <= shown.count("Step each[")
        terminal.type(f"{answer}\n")
    ran = terminal.ended()
    assert ran.code == 1, ran
    assert sorted(project.lines("ran")) == ["a", "c"]
