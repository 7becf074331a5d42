"""What users and their machines do wrong around agents, as the command line tells them: what, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import BUNDLED, CLAUDE, OPEN, living, program, serving, told, with_program, write

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

VERSION = "[ \"$1\" = --version ] && { echo '2.1.300 (Claude Code)'; exit; }\n"
HELP = (
    '[ "$1" = --version ] && { echo 1.18.33; exit; }\n[ "$1" = --help ] && { echo "  opencode serve  starts"; exit; }\n'
)


def failed(project: Project, windlass: Windlass, *arguments: str) -> Any:
    """Run a task that fails, and give the error; afterwards everything else still works."""
    ran = windlass("run", "--task", "do it", "--no-fallback", *arguments, "--json", code=1)
    assert living(project) == []
    (execution,) = project.ids()
    assert "failed" in windlass("status", execution).out
    error = ran.json["steps"][0]["error"]
    assert error["advice"], error
    return error


def one_and_soak(cases: Iterable[str], one: str) -> list[Any]:
    """One case always, the others in `make soak`: the runners' own tests have each of them."""
    return [case if case == one else pytest.param(case, marks=pytest.mark.soak) for case in cases]


# -- programs ----------------------------------------------------------------------------------------

BROKEN = {
    "an old version": ("echo '1.0.35 (Claude Code)'", "configuration", "too old"),
    "garbage": (VERSION + "echo no protocol; exit 0", "configuration", "no protocol"),
    "nothing at all": (VERSION + "exit 0", "transient", "exit code 0 and no result"),
    "a flood": (VERSION + "yes flood", "resource", "flood"),
    "a crash": (VERSION + "kill -SEGV $$", "transient", "SIGSEGV"),
}


@pytest.mark.parametrize("how", one_and_soak(BROKEN, "garbage"))
def test_a2_a_broken_claude_is_a_failure_that_says_what_is_wrong(
    project: Project, windlass: Windlass, how: str
) -> None:
    lines, category, words = BROKEN[how]
    project.plan("steps: [{id: a, agent: developer, prompt: do it, retry: {max: 0}}]")
    with serving(project):
        with_program(project, CLAUDE, program(project.user / "claude", lines))
        ran = windlass("run", "plan.yaml", "--no-fallback", "--runtime", CLAUDE, "--json", code=1)
        assert living(project) == []
        (execution,) = project.ids()
        assert "failed" in windlass("status", execution).out
    error = ran.json["steps"][0]["error"]
    assert error["category"] == category
    assert words in error["message"]
    assert error["advice"]


@pytest.mark.parametrize("runtime", one_and_soak([CLAUDE, OPEN], CLAUDE))
def test_c3_a_runtime_that_hangs_is_ended_by_the_steps_timeout(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    answers = VERSION if runtime == CLAUDE else HELP
    project.plan("steps: [{id: a, agent: developer, prompt: do it, timeout: 2s, retry: {max: 0}}]")
    with serving(project):
        with_program(project, runtime, program(project.user / "hangs", answers + "sleep 1000"))
        ran = windlass("run", "plan.yaml", "--no-fallback", "--runtime", runtime, "--json", code=1)
        assert living(project) == []
    error = ran.json["steps"][0]["error"]
    assert error["category"] == "resource"
    assert "timeout of 2 s" in error["message"]
    assert "raise `timeout`" in error["advice"][0]


OPEN_BROKEN = {
    "garbage": ("echo I am a teapot", "configuration", "I am a teapot"),
    "nothing at all": ("exit 0", "configuration", "nothing"),
    "no server": (HELP + "echo cannot bind >&2; exit 3", "transient", "exit code 3"),
}


@pytest.mark.parametrize("how", one_and_soak(OPEN_BROKEN, "no server"))
def test_a3_a_broken_opencode_is_a_failure_that_says_what_is_wrong(
    project: Project, windlass: Windlass, how: str
) -> None:
    lines, category, words = OPEN_BROKEN[how]
    project.plan("steps: [{id: a, agent: developer, prompt: do it, retry: {max: 0}}]")
    with serving(project):
        with_program(project, OPEN, program(project.user / "opencode", lines))
        ran = windlass("run", "plan.yaml", "--no-fallback", "--runtime", OPEN, "--json", code=1)
        assert living(project) == []
    error = ran.json["steps"][0]["error"]
    assert error["category"] == category, error
    assert words in error["message"], error
    assert error["advice"], error


def test_a2_without_a_key_claude_code_says_how_to_get_one(project: Project, windlass: Windlass) -> None:
    with serving(project) as model:
        project.env["ANTHROPIC_API_KEY"] = ""
        error = failed(project, windlass, "--runtime", CLAUDE)
    assert model.requests == []
    assert error["category"] == "permission"
    assert "/login" in error["message"]


def test_a2_an_unknown_model_is_said_with_where_to_name_another(project: Project, windlass: Windlass) -> None:
    with serving(project, [Reply.error(404, "model: nonesuch-1", repeat=True)]):
        error = failed(project, windlass, "--runtime", CLAUDE, "--model", "nonesuch-1")
    assert error["category"] == "configuration"
    assert "nonesuch-1" in error["message"]
    assert "`model`" in " ".join(error["advice"])


def test_d5_a_resume_without_its_runtime_is_refused_and_goes_on_once_it_is_back(
    project: Project, windlass: Windlass
) -> None:
    target = project.path / "a.txt"
    with serving(project, [write(CLAUDE, target), write(CLAUDE, target), Reply.say("Written.")]) as model:
        stopped = windlass("run", "--task", "write", "--runtime", CLAUDE, "--no-fallback", code=3)
        windlass.shell(stopped.command("approve"))
        (execution,) = project.ids()
        with_program(project, CLAUDE, str(project.user / "nowhere"))
        refused = windlass("resume", execution, code=2)
        assert f"{project.user / 'nowhere'}" in refused.err
        assert project.state(execution).status == "paused"
        with_program(project, CLAUDE, str(BUNDLED))
        assert "Written." in windlass("resume", execution).out
    model.check()
    assert target.exists()


# -- words -------------------------------------------------------------------------------------------


def test_a5_an_unknown_role_skill_or_runtime_is_refused_before_anything_runs_with_the_nearest(
    project: Project, windlass: Windlass
) -> None:
    with serving(project) as model:
        for arguments, near in (
            (["--role", "reviewr"], "reviewer"),
            (["--skill", "changelog"], "no skill"),
            (["--runtime", "claude-cod"], "did you mean claude-code?"),
            (["--chain", "architect,develper"], "developer"),
        ):
            refused = windlass("run", "--task", "do it", *arguments, code=2)
            assert near in refused.err
    assert (project.ids(), model.requests) == ([], [])


def test_a5_a_malformed_role_is_named_with_file_and_line_and_the_others_work(
    project: Project, windlass: Windlass
) -> None:
    project.file(".claude/agents/bad.md", "---\nname: bad\ntools: [Read\n---\nBroken.\n")
    project.file(".claude/agents/good.md", "---\nname: good\ndescription: Fine\n---\nYou are fine.\n")
    with serving(project, [Reply.say("Fine indeed.")]) as model:
        listed = windlass("agents")
        refused = windlass("run", "--task", "do it", "--role", "bad", "--runtime", CLAUDE, code=2)
        ran = windlass("run", "--task", "do it", "--role", "good", "--runtime", CLAUDE)
    model.check()
    for said in (listed.out + listed.err, refused.err):
        assert ".claude/agents/bad.md:3" in said or ".claude/agents/bad.md:4" in said, said
    assert "Fine indeed." in ran.out
    assert "You are fine." in model.requests[0].system


def test_a5_huge_and_binary_files_are_cut_or_named_and_the_user_is_told(project: Project, windlass: Windlass) -> None:
    project.file("huge.txt", "begins\n" + "0123456789\n" * 1_000_000 + "ends\n")
    (project.path / "picture.bin").write_bytes(bytes(range(256)) * 100)
    with serving(project, [Reply.say("Seen.")]) as model:
        files = ["--file", "huge.txt", "--file", "picture.bin"]
        ran = windlass("run", "--task", "look", *files, "--runtime", CLAUDE)
    model.check()
    told_so = model.requests[0].last_user_text
    assert len(told_so) < 300_000
    assert "begins" in told_so
    assert "ends\n" in told_so
    assert 'path="picture.bin"' in told_so
    assert "\x01" not in told_so
    (began,) = told(project, ev.AgentBegan)
    for name in ("huge.txt", "picture.bin"):
        assert any(name in note for note in began.notes)
        assert f"{name}" in ran.err


def test_a5_a_file_that_is_not_there_fails_the_step_before_a_model_is_asked(
    project: Project, windlass: Windlass
) -> None:
    project.file("notes.md", "a note")
    with serving(project) as model:
        error = failed(project, windlass, "--file", "note.md", "--runtime", CLAUDE)
    assert model.requests == []
    assert error["category"] == "configuration"
    assert "notes.md" in error["message"]
